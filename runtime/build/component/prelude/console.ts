import { type LogLevel, log } from 'pie:inferlet/runtime@0.1.0';
import { define, isRunning, onStart } from './phase.ts';

/** Maximum lines kept while the module loads; `run` writes them when it starts. */
const MAX_EARLY_LINES = 100;
/** Levels of nested objects that a line shows; deeper objects appear as `{…}` or `[…]`. */
const MAX_DEPTH = 4;
/** Maximum entries of each object that a line shows. */
const MAX_ITEMS = 100;

const earlyLines: { level: LogLevel; text: string }[] = [];

function write(level: LogLevel, values: readonly unknown[]): void {
  const text = values
    .map((value) => (typeof value === 'string' ? value : show(value, MAX_DEPTH, [])))
    .join(' ')
    .toWellFormed();
  if (isRunning()) log(level, text);
  else if (earlyLines.length < MAX_EARLY_LINES) earlyLines.push({ level, text });
}

onStart(() => {
  for (const { level, text } of earlyLines) log(level, text);
});

/** Formats a value for people to read. `depth` levels of objects may still be shown; `above` holds the objects around the value. */
function show(value: unknown, depth: number, above: readonly object[]): string {
  if (typeof value === 'string') return JSON.stringify(value);
  if (typeof value === 'bigint') return `${value}n`;
  if (typeof value === 'function') return `[function ${value.name || 'anonymous'}]`;
  if (typeof value !== 'object' || value === null) return String(value);
  if (above.includes(value)) return '[circular]';
  if (value instanceof Error) return `${value}${value.stack ? `\n${value.stack.trimEnd()}` : ''}`;
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? 'Invalid Date' : value.toISOString();
  if (value instanceof RegExp) return String(value);
  if (depth === 0) return Array.isArray(value) ? '[…]' : '{…}';
  const inside = [...above, value];
  const item = (entry: unknown): string => show(entry, depth - 1, inside);
  if (Array.isArray(value)) return `[${listText(value, item)}]`;
  if (value instanceof Map)
    return `Map { ${listText([...value], ([key, entry]) => `${item(key)} => ${item(entry)}`)} }`;
  if (value instanceof Set) return `Set { ${listText([...value], item)} }`;
  if (ArrayBuffer.isView(value) && !(value instanceof DataView)) {
    return `${value.constructor.name} [${listText(Array.from(value as unknown as ArrayLike<unknown>), item)}]`;
  }
  return `{ ${listText(Object.entries(value), ([key, entry]) => `${key}: ${item(entry)}`)} }`;
}

function listText<T>(items: readonly T[], text: (item: T) => string): string {
  const more = items.length > MAX_ITEMS ? `, … ${items.length - MAX_ITEMS} more` : '';
  return items.slice(0, MAX_ITEMS).map(text).join(', ') + more;
}

define('console', {
  log: (...values: unknown[]) => write('info', values),
  info: (...values: unknown[]) => write('info', values),
  dir: (value: unknown) => write('info', [value]),
  debug: (...values: unknown[]) => write('debug', values),
  trace: (...values: unknown[]) => write('debug', [...values, new Error('trace').stack ?? '']),
  warn: (...values: unknown[]) => write('warn', values),
  error: (...values: unknown[]) => write('error', values),
  assert: (condition: unknown, ...values: unknown[]) => {
    if (!condition) write('error', ['Assertion failed:', ...values]);
  },
});
