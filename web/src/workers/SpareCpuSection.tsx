/** What there was to have and what was used of it, over time. */
import { useState } from "preact/hooks";
import { get } from "../api/client";
import type { Samples } from "../api/types";
import { never, useResource } from "../live/resource";
import { Curves } from "../ui/Curves";
import { Button } from "../ui/Button";
import { Section } from "../ui/Section";
import { Empty, Shown } from "../ui/states";

const SPANS: [string, number][] = [
  ["3 h", 3 * 3600],
  ["24 h", 86400],
  ["14 d", 14 * 86400],
];
const POINTS = 720;
const SAMPLED_EVERY_MS = 60_000;

/** `path`: of a worker's samples, or of the grid's. */
export function SpareCpuSection({ title, path }: { title: string; path: string }) {
  const [span, setSpan] = useState(SPANS[0]![1]);
  const samples = useResource(
    `${path}/${span}`,
    (signal) => get<Samples>(path, { since: 60 * Math.floor(Date.now() / 60_000) - span, points: POINTS }, signal),
    never,
    SAMPLED_EVERY_MS,
  );
  return (
    <Section title={title} aside={<SpanChoice chosen={span} onChoose={setSpan} />}>
      <Shown of={samples} what="samples">
        {(data) =>
          data.at.length > 1 ? (
            <SampleCurves samples={data} span={span} />
          ) : (
            <Empty>Samples are taken every minute; the chart needs two of them.</Empty>
          )
        }
      </Shown>
    </Section>
  );
}

function SpanChoice({ chosen, onChoose }: { chosen: number; onChoose: (span: number) => void }) {
  return (
    <div class="buttons joined" role="group" aria-label="Length of time">
      {SPANS.map(([name, seconds]) => (
        <Button key={name} isPressed={chosen === seconds} onClick={() => onChoose(seconds)}>
          {name}
        </Button>
      ))}
    </div>
  );
}

function SampleCurves({ samples, span }: { samples: Samples; span: number }) {
  return (
    <Curves
      at={samples.at}
      every_s={samples.every_s}
      span_s={span}
      curves={[
        { name: "spare CPU, cores", values: samples.spare_cpu, tone: "spare" },
        { name: "slots offered", values: samples.slots, tone: "offered" },
        { name: "slots in use", values: samples.used, tone: "used" },
        { name: "of them frozen", values: samples.frozen, tone: "frozen" },
      ]}
    />
  );
}
