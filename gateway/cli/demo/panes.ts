/** A column of the screen: a title, a text that grows, and a line of figures. */
export interface Pane {
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
