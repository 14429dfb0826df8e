import { counted, duration } from '../format.ts';
import { displayText, type Terminal } from '../terminal.ts';
import { fits, type Pane, sideBySide } from './panes.ts';
import type { Run } from './task.ts';

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
