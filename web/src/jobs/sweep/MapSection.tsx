/** A heat map of a sweep over two of its parameters, with its legend, and the same as a table of numbers. */
import type { JobView } from "../../api/types";
import { Link, setWords, useWord } from "../../router";
import { count } from "../../text/human";
import { Button } from "../../ui/Button";
import { Section } from "../../ui/Section";
import { Empty, Shown } from "../../ui/states";
import { axesOf, type Grid, gridOf, type Measure, numberOf, stateOf } from "./grid";
import { HeatMap, nameOf, valueText } from "./HeatMap";
import { allNamesIn, namesIn, shown, type SweepRow, useSweep } from "./rows";
import { type Scale, scaleOf, STATES, stateColours, toneAt } from "./tones";
import { whereOf } from "./where";
import { theme } from "../../ui/theme";

const MOST_IN_TABLE = 10_000;
const LEGEND_STEPS = [0, 0.25, 0.5, 0.75, 1];

export function MapSection({ job }: { job: JobView }) {
  const [word, setWord] = useWord("map");
  const rows = useSweep(word === null ? null : job.id);
  return (
    <Section
      title="Map"
      aside={
        <Button isPressed={word !== null} onClick={() => setWord(word === null ? "" : null)}>
          over two parameters
        </Button>
      }
    >
      {word !== null && (
        <Shown of={rows} what="the tasks">
          {(all) => <Chosen job={job} rows={all} word={word} />}
        </Shown>
      )}
    </Section>
  );
}

interface ChosenProps {
  job: JobView;
  rows: SweepRow[];
  /** `x,y` of the address; what it does not name is chosen here. */
  word: string;
}

function Chosen({ job, rows, word }: ChosenProps) {
  const [colour] = useWord("colour");
  const [isLog] = useWord("log");
  const [isTable] = useWord("as");
  const [where] = useWord("where");
  const axes = axesOf(rows);
  if (axes.length < 2) return <Empty>A map needs two parameters with several values each.</Empty>;
  const [x, y] = chosenOf(axes, word);
  const metrics = namesIn(rows, (row) => row.metrics).map((name): Measure => `metric:${name}`);
  const measures: Measure[] = ["state", "took", ...metrics];
  const measure = measures.find((one) => one === colour) ?? metrics[0] ?? "state";
  const { test } = whereOf(where ?? "", allNamesIn(rows));
  const grid = gridOf(rows, x, y, test);
  const values = measure === "state" ? [] : grid.cells.map((cell) => numberOf(cell, measure));
  const scale = scaleOf(values, isLog !== null);
  return (
    <>
      <div class="toolbar map-tools">
        <Choice label="Across" of={axes} chosen={x} onChoose={(one) => setWords({ map: `${one},${y}` })} />
        <Choice label="Down" of={axes} chosen={y} onChoose={(one) => setWords({ map: `${x},${one}` })} />
        <Choice
          label="Colour"
          of={measures}
          chosen={measure}
          name={nameOf}
          onChoose={(one) => setWords({ colour: one })}
        />
        {scale && scaleOf(values, true)?.isLog && (
          <Button isPressed={scale.isLog} onClick={() => setWords({ log: scale.isLog ? null : "1" })}>
            logarithmic
          </Button>
        )}
        {grid.cells.length <= MOST_IN_TABLE && (
          <Button isPressed={isTable !== null} onClick={() => setWords({ as: isTable === null ? "table" : null })}>
            as a table
          </Button>
        )}
      </div>
      {isTable === null ? (
        <HeatMap job={job.id} grid={grid} x={x} y={y} measure={measure} scale={scale} />
      ) : (
        <ValueTable job={job.id} grid={grid} x={x} y={y} measure={measure} />
      )}
      <MapLegend measure={measure} scale={scale} />
      {job.task_count > rows.length && (
        <p class="faint">
          The first {count(rows.length)} of {count(job.task_count)} tasks are shown.
        </p>
      )}
    </>
  );
}

/** The two axes: as the address says, else the last parameter across and the one before it down. */
function chosenOf(axes: string[], word: string): [string, string] {
  const x = axes.find((name) => word.startsWith(`${name},`)) ?? axes.at(-1)!;
  const others = axes.filter((name) => name !== x);
  return [x, others.find((name) => word.endsWith(`,${name}`)) ?? others.at(-1)!];
}

interface ChoiceProps<Word extends string> {
  label: string;
  of: Word[];
  chosen: Word;
  name?: (word: Word) => string;
  onChoose: (word: Word) => void;
}

function Choice<Word extends string>({ label, of, chosen, name = String, onChoose }: ChoiceProps<Word>) {
  return (
    <label>
      {label}{" "}
      <select value={chosen} onChange={(event) => onChoose(event.currentTarget.value as Word)}>
        {of.map((word) => (
          <option key={word} value={word}>
            {name(word)}
          </option>
        ))}
      </select>
    </label>
  );
}

function MapLegend({ measure, scale }: { measure: Measure; scale: Scale | null }) {
  void theme.value; // the colours are those of the theme
  if (measure === "state") {
    const colours = stateColours();
    return (
      <ul class="legend" aria-label="Legend">
        {STATES.map((state) => (
          <li key={state}>
            <Patch colour={colours[state]} /> {state}
            {state === "failed" && " (×)"}
            {state === "running" && " (•)"}
          </li>
        ))}
      </ul>
    );
  }
  if (!scale) return <p class="faint">No task has a number of this name yet.</p>;
  return (
    <ul class="legend" aria-label="Legend">
      <li>{nameOf(measure)}</li>
      {LEGEND_STEPS.map((share) => (
        <li key={share}>
          <Patch colour={toneAt(share)} /> {valueText(valueAt(share, scale), measure)}
        </li>
      ))}
      <li class="faint">no colour: none yet</li>
      <li class="faint">×: failed</li>
    </ul>
  );
}

const valueAt = (share: number, { least, most, isLog }: Scale): number =>
  isLog ? least * (most / least) ** share : least + share * (most - least);

const Patch = ({ colour }: { colour: string }) => <span class="swatch" style={{ background: colour }} />;

interface TableProps {
  job: number;
  grid: Grid;
  x: string;
  y: string;
  measure: Measure;
}

function ValueTable({ job, grid, x, y, measure }: TableProps) {
  const text = (cell: SweepRow[]): string =>
    measure === "state" ? (stateOf(cell) ?? "–") : cell.length ? valueText(numberOf(cell, measure), measure) : "–";
  const failed = (cell: SweepRow[]): string => (measure !== "state" && stateOf(cell) === "failed" ? " × failed" : "");
  return (
    <div class="scroller map-table">
      <table>
        <caption class="unseen">
          {nameOf(measure)} by {x} (across) and {y} (down)
        </caption>
        <thead>
          <tr>
            <th scope="col">
              {y} ↓ {x} →
            </th>
            {grid.xs.map((value) => (
              <th key={String(value)} scope="col" class="right">
                {shown(value)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {grid.ys.map((value, line) => (
            <tr key={String(value)}>
              <th scope="row" class="number">
                {shown(value)}
              </th>
              {grid.xs.map((_, column) => {
                const cell = grid.cells[line * grid.xs.length + column]!;
                return (
                  <td key={column} class="right number">
                    {cell[0] ? (
                      <Link to={`/jobs/${job}/tasks/${cell[0].number}`}>{text(cell) + failed(cell)}</Link>
                    ) : (
                      "–"
                    )}
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
