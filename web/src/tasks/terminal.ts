/** What a program printed, as a terminal would show it: colours, and lines that were written over. */

/** A run of text in one style; `style` names classes of terminal.css, empty where nothing was asked for. */
export interface Run {
  text: string;
  style: string;
}

/** Colours and other commands of terminals (ECMA-48), titles of windows, and single characters that move. */
const COMMAND =
  // eslint-disable-next-line no-control-regex
  /\x1b\[([0-9;:]*)[ -/]*([@-~])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-_]|[\r\b\x00-\x08\x0b\x0c\x0e-\x1f\x7f]/g;
const COLOURS = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
/** Of 256 colours, 16 to 231 are a cube of six steps for each of red, green and blue. */
const CUBE_BEGIN = 16;
const CUBE_END = 232;
/** Characters that stand for bytes that are no text; with one in so many, the whole is not. */
const NOT_TEXT = /[\u0000\ufffd]/g;
const NOT_TEXT_SHARE = 0.1;

interface Look {
  colour: string;
  isBold: boolean;
  isFaint: boolean;
}

const PLAIN: Look = { colour: "", isBold: false, isFaint: false };

/** Returns the lines of a text, each as its runs; a last line without an end counts, an empty one does not. */
export function linesOf(text: string): Run[][] {
  const texts = text.split("\n");
  if (texts.at(-1) === "") texts.pop();
  if (!/[\x00-\x08\x0b-\x1f\x7f]/.test(text)) return texts.map((line) => (line ? [{ text: line, style: "" }] : []));
  let look = PLAIN;
  return texts.map((line) => {
    const runs: Run[] = [];
    look = addLine(runs, line, look);
    return runs;
  });
}

/** Says whether these are a program's bytes and no text for people. */
export function isBinary(text: string): boolean {
  const start = text.slice(0, 4096);
  return start.length > 0 && (start.match(NOT_TEXT)?.length ?? 0) > NOT_TEXT_SHARE * start.length;
}

/** Adds one line; returns the look that the next one begins with. */
function addLine(runs: Run[], line: string, before: Look): Look {
  const cells: Run[] = []; // one for each column that is shown
  let look = before;
  let column = 0;
  let end = 0;
  const write = (written: string): void => {
    const style = styleOf(look);
    for (const character of written) cells[column++] = { text: character, style };
  };
  for (const command of line.matchAll(COMMAND)) {
    write(line.slice(end, command.index));
    end = command.index + command[0].length;
    if (command[0] === "\r") column = 0;
    else if (command[0] === "\b") column = Math.max(0, column - 1);
    else if (command[2] === "m") look = changed(look, command[1] ?? "");
    else if (command[2] === "K" && command[1] !== "1")
      cells.length = command[1] === "2" ? 0 : Math.min(column, cells.length);
  }
  write(line.slice(end));
  for (let place = 0; place < cells.length; place++) add(runs, cells[place]?.text ?? " ", cells[place]?.style ?? "");
  return look;
}

function add(runs: Run[], text: string, style: string): void {
  const last = runs.at(-1);
  if (last?.style === style) last.text += text;
  else runs.push({ text, style });
}

/** The look after a list of attributes: `1;31` is bold and red. */
function changed(before: Look, attributes: string): Look {
  const numbers = attributes.split(/[;:]/).map(Number);
  let look = before;
  for (let place = 0; place < numbers.length; place++) {
    const number = numbers[place]!;
    if (number === 0) look = PLAIN;
    else if (number === 1) look = { ...look, isBold: true };
    else if (number === 2) look = { ...look, isFaint: true };
    else if (number === 22) look = { ...look, isBold: false, isFaint: false };
    else if (number === 39) look = { ...look, colour: "" };
    else if (number >= 30 && number <= 37) look = { ...look, colour: COLOURS[number - 30]! };
    else if (number >= 90 && number <= 97) look = { ...look, colour: COLOURS[number - 90]! };
    else if (number === 38 || number === 48) {
      const isIndexed = numbers[place + 1] === 5;
      const colour = isIndexed ? indexed(numbers[place + 2] ?? 0) : nearest(numbers.slice(place + 2, place + 5), 255);
      if (number === 38) look = { ...look, colour };
      place += isIndexed ? 2 : 4;
    }
  }
  return look;
}

function indexed(number: number): string {
  if (number < CUBE_BEGIN) return COLOURS[number % 8]!;
  if (number >= CUBE_END) return "";
  const step = number - CUBE_BEGIN;
  return nearest([Math.floor(step / 36), Math.floor(step / 6) % 6, step % 6], 5);
}

/** The one of eight colours that has what is strong in this one. */
function nearest(amounts: number[], most: number): string {
  const bits = amounts.map((amount) => (amount > most / 2 ? 1 : 0));
  return COLOURS[(bits[0] ?? 0) + 2 * (bits[1] ?? 0) + 4 * (bits[2] ?? 0)]!;
}

function styleOf(look: Look): string {
  const styles = [look.colour && `ink-${look.colour}`, look.isBold && "ink-bold", look.isFaint && "faint"];
  return styles.filter(Boolean).join(" ");
}
