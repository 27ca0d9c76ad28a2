/** Sentences that name jobs. */

const NAMED_JOB = /job (\d+)/g;

export interface Piece {
  text: string;
  job: number | null;
}

/** Splits a sentence at the jobs that it names. */
export function pieces(sentence: string): Piece[] {
  const whole = sentence.charAt(0).toUpperCase() + sentence.slice(1) + (sentence.endsWith(".") ? "" : ".");
  const found: Piece[] = [];
  let place = 0;
  for (const match of whole.matchAll(NAMED_JOB)) {
    found.push({ text: whole.slice(place, match.index), job: null }, { text: match[0], job: Number(match[1]) });
    place = match.index + match[0].length;
  }
  return [...found, { text: whole.slice(place), job: null }].filter((piece) => piece.text);
}
