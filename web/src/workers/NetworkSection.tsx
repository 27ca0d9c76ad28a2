/** The network: what is known of it, what flows along it, and measuring it. */
import { get, post } from "../api/client";
import type { NetworkNode, NetworkView } from "../api/types";
import { anyWorker, useResource } from "../live/resource";
import { Link } from "../router";
import { isAdmin } from "../session/session";
import { Button } from "../ui/Button";
import { Section } from "../ui/Section";
import { Shown } from "../ui/states";
import { attempt } from "../ui/toast";
import { Flows } from "./Flows";
import { pointOf, rate, ROW, rowsOf, shareOf, strokeOf, widthOf, type NodeRow } from "./network";

const READ_EVERY_MS = 2000;
const KNOWN = { file: "written down", measured: "measured", assumed: "assumed" };

export function NetworkSection() {
  const network = useResource(
    "network",
    (signal) => get<NetworkView>("/network", {}, signal),
    anyWorker,
    READ_EVERY_MS,
  );
  const isOfUse = network.data && (network.data.peers || network.data.file !== null);
  if (network.data && !isOfUse) return null;
  return (
    <Section title="Network" aside={network.data && <Measure view={network.data} onDone={network.reload} />}>
      <Shown of={network} what="the network">
        {(view) => (
          <>
            <Tree rows={rowsOf(view)} />
            {view.flows.length > 0 && <Flows flows={view.flows} />}
            <p class="faint">
              {view.file ? `As written down in ${view.file}.` : "Nothing is written down in a network.toml."} Dashed
              links are assumed from what workers report of their network cards.
            </p>
          </>
        )}
      </Shown>
    </Section>
  );
}

/** The button that has an idle grid measured, and how far that is. */
function Measure({ view, onDone }: { view: NetworkView; onDone: () => void }) {
  const { is_running, probes, outcome } = view.measurement;
  if (is_running) return <span role="status">measuring: {probes} probes so far</span>;
  if (!isAdmin.value || view.file !== null) return null;
  const measure = () => attempt(() => post("/network/measure"));
  return (
    <>
      {outcome && <span class="faint">{outcome}</span>}
      <Button
        onClick={() => void measure().then(onDone)}
        label="Measure the links: only while no task runs and no owner is there"
      >
        Measure
      </Button>
    </>
  );
}

function Tree({ rows }: { rows: NodeRow[] }) {
  const width = widthOf(rows);
  return (
    <div class="network" style={{ "--tree": `${width}px`, "--row": `${ROW}px` }}>
      <svg width={width} height={rows.length * ROW} aria-hidden="true">
        {rows.map((row, place) => (
          <Branch key={row.node?.name ?? place} row={row} place={place} rows={rows} />
        ))}
        {rows.map((row, place) => {
          const [x, y] = pointOf(row, place);
          return (
            row.node && (
              <circle key={row.node.name} class={row.node.is_switch ? "switch" : "host"} cx={x} cy={y} r="4" />
            )
          );
        })}
      </svg>
      <ul>
        {rows.map((row, place) => (
          <li key={row.node?.name ?? place}>
            {row.node ? <Node node={row.node} /> : <span class="faint">and {row.leftOut} more</span>}
          </li>
        ))}
      </ul>
    </div>
  );
}

/** A node's link to its parent, and in it what flows. */
function Branch({ row, place, rows }: { row: NodeRow; place: number; rows: NodeRow[] }) {
  const above = rows[row.parent];
  if (!above || !row.node) return null;
  const [x, y] = pointOf(row, place);
  const [parentX, parentY] = pointOf(above, row.parent);
  const way = `M${parentX} ${parentY}V${y}H${x}`;
  const share = shareOf(row.node);
  return (
    <>
      <path class={`wire ${row.node.known_by}`} d={way} stroke-width={strokeOf(row.node)} />
      {share > 0 && <path class="wire flowing" d={`M${parentX} ${y}H${x}`} stroke-width={2 + 4 * share} />}
    </>
  );
}

function Node({ node }: { node: NetworkNode }) {
  const capacity = node.up === node.down ? rate(node.up) : `${rate(node.up)} up, ${rate(node.down)} down`;
  const isWorker = !node.is_switch && node.name !== "master";
  return (
    <>
      {isWorker ? <Link to={`/workers/${encodeURIComponent(node.name)}`}>{node.name}</Link> : <b>{node.name}</b>}
      {node.known_by && (
        <span class="faint">
          {capacity}, {KNOWN[node.known_by]}
        </span>
      )}
      {node.flowing_up > 0 && <span class="number">↑ {rate(node.flowing_up)}</span>}
      {node.flowing_down > 0 && <span class="number">↓ {rate(node.flowing_down)}</span>}
    </>
  );
}
