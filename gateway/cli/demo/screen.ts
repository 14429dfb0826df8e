import { counted, duration } from '../format.ts';
import { displayText, type Terminal } from '../terminal.ts';
import type { Run } from './loop.ts';

const TEXT_ROWS = 14;
const CLEAR_LINE = '\x1b[2K';

/** Shows both sides on a terminal, and redraws them in place as their texts grow. Draws nothing if the output is not a terminal or is too narrow. */
export class Screen {
  readonly #terminal: Terminal;
  readonly #titles: readonly [string, string];
  readonly #isVisible: boolean;
  readonly #columns: number;
  #texts: [string, string] = ['', ''];
  #figures: [string, string] = ['', ''];
  /** Lines of the last drawing, above the cursor. */
  #drawnLines = 0;

  constructor(terminal: Terminal, titles: readonly [string, string]) {
    this.#terminal = terminal;
    this.#titles = titles;
    this.#columns = process.stdout.columns ?? 0;
    this.#isVisible = terminal.redraws && fits(this.#columns);
  }

  /** Begins a round: empties both panes, and shows `label` in place of the figures. */
  clear(label: string): void {
    this.#texts = ['', ''];
    this.#figures = [`${label} …`, `${label} …`];
    this.#draw();
  }

  add(side: 0 | 1, text: string): void {
    this.#texts[side] += text;
    this.#draw();
  }

  done(side: 0 | 1, { ms, requests, tokens }: Run): void {
    this.#figures[side] = `${duration(ms)}, ${counted(requests, 'request')}, ${counted(tokens, 'token')}`;
    this.#draw();
  }

  /** Leaves the last drawing on the screen, above all further output. */
  leave(): void {
    if (this.#drawnLines > 0) this.#terminal.print('');
  }

  #draw(): void {
    if (!this.#isVisible) return;
    const pane = (side: 0 | 1): Pane => ({
      title: this.#titles[side],
      text: this.#texts[side],
      figures: this.#figures[side],
    });
    const lines = sideBySide(pane(0), pane(1), this.#columns, TEXT_ROWS);
    const cursorUp = this.#drawnLines > 0 ? `\x1b[${this.#drawnLines}A` : '';
    void this.#terminal.write(`${cursorUp}${lines.map((line) => `${CLEAR_LINE}${displayText(line)}\n`).join('')}`);
    this.#drawnLines = lines.length;
  }
}

/** A column of the screen: a title, a text that grows, and a line of figures. */
interface Pane {
  readonly title: string;
  readonly text: string;
  readonly figures: string;
}

/** Characters between the columns. */
const GAP = 3;
/** Narrower columns are hard to read. */
const MIN_COLUMN = 24;

/** True when two panes fit beside each other. */
export function fits(columns: number): boolean {
  return columns >= 2 * MIN_COLUMN + GAP;
}

/**
 * Lines of two panes side by side, each line at most `columns` wide. Each text takes `rows` lines; a longer text shows its last ones.
 */
export function sideBySide(left: Pane, right: Pane, columns: number, rows: number): string[] {
  const width = Math.floor((columns - GAP) / 2);
  const linesOf = ({ title, text, figures }: Pane): string[] => {
    const wrapped = wrap(text, width).slice(-rows);
    const filled = [...wrapped, ...Array<string>(rows - wrapped.length).fill('')];
    return [title, '─'.repeat(width), ...filled, figures].map((line) => line.slice(0, width).padEnd(width));
  };
  const rightLines = linesOf(right);
  return linesOf(left).map((line, i) => `${line}${' '.repeat(GAP)}${rightLines[i] ?? ''}`.trimEnd());
}

/** Breaks a text at spaces into lines of at most `width` characters; a longer word is cut. */
export function wrap(text: string, width: number): string[] {
  const lines: string[] = [];
  for (const paragraph of text.split('\n')) {
    let line = '';
    for (const word of paragraph.split(' ')) {
      const joined = line === '' ? word : `${line} ${word}`;
      if (joined.length <= width) {
        line = joined;
        continue;
      }
      if (line !== '') lines.push(line);
      line = word;
      while (line.length > width) {
        lines.push(line.slice(0, width));
        line = line.slice(width);
      }
    }
    lines.push(line);
  }
  return lines;
}
