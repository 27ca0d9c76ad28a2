/** Lines break where nothing was known for a while. */
export function withGaps(at: number[], columns: number[][], every_s: number): [number[], ...(number | null)[][]] {
  const times: number[] = [];
  const values: (number | null)[][] = columns.map(() => []);
  at.forEach((time, place) => {
    const before = at[place - 1];
    if (before !== undefined && time - before > 2.5 * every_s) {
      times.push(before + every_s);
      for (const column of values) column.push(null);
    }
    times.push(time);
    values.forEach((column, which) => column.push(columns[which]![place]!));
  });
  return [times, ...values];
}
