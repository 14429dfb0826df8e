import { type InvocationEvent, LEVELS } from '../../control.ts';
import { JsonText, resultIn } from '../../http/json-text.ts';
import { bytes, number } from '../html/format.ts';
import { type Html, html, textOf } from '../html/html.ts';

/** Maximum characters of one row; `pie attach` and the API show the rest. */
const MAX_ROW = 600;
/** Maximum characters of a result's row: the page shows the result elsewhere. */
const MAX_RESULT_ROW = 160;

/** Maximum characters of text that a page or a frame shows. A buffer of events reads no further event at this size. */
export const MAX_TEXT = 200_000;

/** Characters of `MAX_TEXT` that the note about omitted characters may take. */
const NOTE_LENGTH = 200;

/** A readable form of consecutive events of an invocation. */
export interface Transcript {
  /** The inferlet's text messages, joined. */
  readonly text: string;
  /** The other events, one row of markup each. */
  readonly rows: string;
}

/** Separates the inferlet's text from all other events. */
export async function transcript(events: readonly InvocationEvent[]): Promise<Transcript> {
  let text = '';
  const rows: Html[] = [];
  for (const { seq, event, data } of events) {
    // A result may be long and nested to any depth, so it is not parsed.
    const parsed = event === 'result' ? {} : membersOf(data);
    if (event === 'message' && typeof parsed.text === 'string') text += parsed.text;
    else rows.push(row(seq, event, parsed, data));
    if (event === 'start' && Number(parsed.attempt) > 1) text += `\n\n— attempt ${Number(parsed.attempt)} —\n\n`;
  }
  return { text: endOf(text), rows: (await Promise.all(rows.map(textOf))).join('') };
}

/** The text itself or, if it is too long, its end after a note about the omitted beginning. */
function endOf(text: string): string {
  if (text.length <= MAX_TEXT) return text;
  const omittedCharacters = text.length - MAX_TEXT + NOTE_LENGTH;
  return `\n… ${number(omittedCharacters)} characters are left out here, \`pie attach\` shows them …\n${text.slice(omittedCharacters).toWellFormed()}`;
}

function row(seq: number, event: InvocationEvent['event'], data: Members, raw: string): Html {
  const level = event === 'log' && LEVELS.some((each) => each === data.level) ? ` level-${data.level}` : '';
  const kind = event === 'log' ? String(data.level) : event;
  return html`<li class="${event}${level}"><span class="seq">${seq}</span><span class="kind">${truncate(kind, 12)}</span><span class="what">${truncate(rowText(event, data, raw), event === 'result' ? MAX_RESULT_ROW : MAX_ROW)}</span></li>`;
}

function rowText(event: InvocationEvent['event'], data: Members, raw: string): string {
  if (event === 'log') return String(data.message);
  if (event === 'gap')
    return `events after number ${data.after} may be missing: the runtime died before it stored them`;
  if (event === 'question') return `${data.text} (until ${data.until})`;
  if (event === 'error') return `${data.code}: ${data.message}`;
  if (event === 'message' && typeof data.base64 === 'string') return `${bytes((data.base64.length * 3) / 4)} of data`;
  if (event === 'message') {
    const { name, mediaType, bytes: size } = membersOf(JSON.stringify(data.file ?? {}));
    return `file ${name} (${mediaType}, ${bytes(Number(size))})`;
  }
  if (event === 'result') return outputText(raw);
  if (event === 'start' || event === 'metric')
    return Object.entries(data)
      .filter(([name]) => name !== 'invocation' && name !== 'function' && name !== 'version')
      .map(([name, value]) => `${name} ${memberText(value)}`)
      .join('  ');
  return raw;
}

/** A member of an event as text; a list as the number of its entries. */
function memberText(value: unknown): string {
  if (typeof value === 'string') return value;
  return JSON.stringify(Array.isArray(value) ? value.length : value);
}

function outputText(result: string): string {
  const { output } = resultIn(result);
  return output instanceof JsonText ? output.text : JSON.stringify(output);
}

type Members = Readonly<Record<string, unknown>>;

function membersOf(json: string): Members {
  const parsed: unknown = JSON.parse(json);
  return typeof parsed === 'object' && parsed !== null ? (parsed as Members) : {};
}

function truncate(text: string, length: number): string {
  return text.length > length ? `${text.slice(0, length)}…` : text;
}
