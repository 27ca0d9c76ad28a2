/** The network as a picture: rows from top to bottom, parents before children, and the links between them. */
import type { NetworkNode, NetworkView } from "../api/types";

const MOST_HOSTS = 40;
const INDENT = 18;
export const ROW = 28;

/** A row of the picture: a node at its depth, or, without one, how many hosts of a switch are left out. */
export interface NodeRow {
  depth: number;
  node: NetworkNode | null;
  leftOut: number;
  /** The row of its parent; -1: it is the root. */
  parent: number;
}

/** Rows of the tree. A switch shows as many hosts as fit, those first along whose links something flows. */
export function rowsOf({ nodes }: NetworkView): NodeRow[] {
  const below = new Map<string, NetworkNode[]>();
  for (const node of nodes) if (node.parent !== null) push(below, node.parent, node);
  const rows: NodeRow[] = [];
  const add = (node: NetworkNode, depth: number, parent: number): void => {
    const place = rows.push({ depth, node, leftOut: 0, parent }) - 1;
    const children = below.get(node.name) ?? [];
    const hosts = children.filter((child) => !child.is_switch);
    const shown = new Set(
      [...hosts].sort((one, other) => Number(flows(other)) - Number(flows(one))).slice(0, MOST_HOSTS),
    );
    for (const host of hosts) if (shown.has(host)) add(host, depth + 1, place);
    if (hosts.length > shown.size)
      rows.push({ depth: depth + 1, node: null, leftOut: hosts.length - shown.size, parent: place });
    for (const child of children) if (child.is_switch) add(child, depth + 1, place);
  };
  for (const node of nodes) if (node.parent === null) add(node, 0, -1);
  return rows;
}

/** The middle of a row's own point. */
export const pointOf = (row: NodeRow, place: number): [number, number] => [
  row.depth * INDENT + 6,
  place * ROW + ROW / 2,
];

/** How wide the tree itself is. */
export const widthOf = (rows: NodeRow[]): number => Math.max(0, ...rows.map((row) => row.depth)) * INDENT + 16;

/** Width of a link's line: a tenfold capacity is one step. */
export const strokeOf = ({ up, down }: NetworkNode): number =>
  Math.min(6, Math.max(1, Math.log10(Math.max(up, down, 1) * 8) - 5.5));

/** The greater share of a link's two directions that is in use, at most 1. */
export function shareOf({ up, down, flowing_up, flowing_down }: NetworkNode): number {
  return Math.min(1, Math.max(up && flowing_up / up, down && flowing_down / down));
}

/** Bytes per second as people say them of a link: `100 Mbit/s`. */
export function rate(bytes_s: number): string {
  const units: [number, string][] = [
    [1e9, "Gbit/s"],
    [1e6, "Mbit/s"],
    [1e3, "kbit/s"],
    [1, "bit/s"],
  ];
  const [size, unit] = units.find(([size]) => bytes_s * 8 >= size) ?? units[3]!;
  return `${Number(((bytes_s * 8) / size).toPrecision(3))} ${unit}`;
}

const flows = (node: NetworkNode): boolean => node.flowing_up > 0 || node.flowing_down > 0;

function push<Key, Value>(map: Map<Key, Value[]>, key: Key, value: Value): void {
  const found = map.get(key);
  if (found) found.push(value);
  else map.set(key, [value]);
}
