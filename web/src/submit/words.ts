/** A command line as a shell would split it: blanks part words, quotes and backslashes keep them together. */

export function wordsOf(line: string): string[] {
  const words: string[] = [];
  let word: string | null = null;
  let quote = "";
  for (let place = 0; place < line.length; place++) {
    const sign = line[place]!;
    if (sign === "\\" && quote !== "'" && place + 1 < line.length) word = (word ?? "") + line[++place]!;
    else if (quote) {
      if (sign === quote) quote = "";
      else word += sign;
    } else if (sign === "'" || sign === '"') {
      quote = sign;
      word ??= "";
    } else if (/\s/.test(sign)) {
      if (word !== null) words.push(word);
      word = null;
    } else word = (word ?? "") + sign;
  }
  if (quote) throw new Error(`a quote ${quote} is not closed`);
  if (word !== null) words.push(word);
  return words;
}

/** Joins words into a command line, quoting as a shell requires. */
export function lineOf(words: readonly string[]): string {
  return words
    .map((word) => (/^[\w@%+=:,./{}-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`))
    .join(" ");
}

/** Words that mean something to a shell alone: a task's program would get them as they are. */
const OF_A_SHELL = /^(\d*(>>?|<)(&\d)?\S*|\|\|?|&&?|;|\$[\w(]\S*|\S+;)$/;

/** The first word of a command that only a shell would understand; undefined: there is none. */
export const shellWord = (words: readonly string[]): string | undefined =>
  words.slice(1).find((word) => OF_A_SHELL.test(word));
