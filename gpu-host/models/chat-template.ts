import { z } from 'zod';
import { causeText, ModelError } from './errors.ts';
import { TemplateError } from './jinja/errors.ts';
import { renderTemplate } from './jinja/interpreter.ts';
import { parseTemplate, type Statement } from './jinja/parser.ts';
import { fromJson } from './jinja/values.ts';

/** Variables of a template, plain JSON values. The operator provides the template; untrusted callers may provide the variables. */
export type TemplateVariables = Readonly<Record<string, unknown>>;

// Bounds on one rendering, besides those of the interpreter on its steps and texts: it blocks the thread, and two nested loops over untrusted
// messages take quadratic time.
const MAX_RENDER_MS = 100;
/**
 * Maximum number of values in the variables, all of which are converted before the first step. A message counts as three values (the
 * message, its role and its content), the list of messages as one.
 */
export const MAX_CHAT_VALUES = 32_768;

const namedTemplates = z.array(z.looseObject({ name: z.string(), template: z.string() }));

/** The template of a `chat_template` field: a text, or the entry named `default` (else the first entry) of a list. */
export function pickChatTemplate(field: unknown): string | null {
  if (typeof field === 'string') return field;
  const named = namedTemplates.safeParse(field);
  if (!named.success) return null;
  return (named.data.find(({ name }) => name === 'default') ?? named.data[0])?.template ?? null;
}

/**
 * A renderer for a Jinja chat template of a Hugging Face model, as `apply_chat_template` of transformers renders it. The variables become values of
 * the template engine, so a template cannot reach properties of JavaScript objects, such as their prototypes.
 *
 * @param specialTokens `bos_token`, `eos_token`, … for the template; variables of the same name override them
 * @returns a function that throws a ModelError `invalid-messages` when rendering takes too long, or when the template refuses the variables;
 * the error then has the template's message and line
 * @throws ModelError `malformed-tokenizer` with the line when the template does not parse
 */
export function compileChatTemplate(
  source: string,
  specialTokens: Readonly<Record<string, string>>,
): (variables: TemplateVariables) => string {
  const template = parse(source);
  const render = (variables: TemplateVariables): string => {
    try {
      const clock = new RenderClock();
      checkSize(variables);
      const all = Object.entries({ ...specialTokens, tools: null, documents: null, ...variables });
      return renderTemplate(template, new Map(all.map(([name, value]) => [name, fromJson(value)])), {
        checkTime: () => clock.check(),
        formatNow: (format) => formatTime(new Date(), format),
      });
    } catch (cause) {
      const message = `the chat template refused the messages: ${causeText(cause)}`;
      throw new ModelError('invalid-messages', message, { cause });
    }
  };
  let needsParts: boolean | undefined;
  return (variables) => {
    needsParts ??= !shows(render, PROBE) && shows(render, partsOf(PROBE));
    return render(needsParts ? withParts(variables) : variables);
  };
}

const PROBE = 'x7Zq';

/**
 * The templates of many models with a vision tower read the content of a message as a list of parts, and leave out a text that is no part. The same
 * test tells them in llama.cpp (`minja`).
 */
function shows(render: (variables: TemplateVariables) => string, content: unknown): boolean {
  try {
    return render({ messages: [{ role: 'user', content }], add_generation_prompt: true }).includes(PROBE);
  } catch {
    return false;
  }
}

const partsOf = (text: string): object[] => [{ type: 'text', text }];

function withParts(variables: TemplateVariables): TemplateVariables {
  if (!Array.isArray(variables.messages)) return variables;
  const messages = variables.messages.map((message: { readonly content?: unknown } | null) =>
    typeof message?.content === 'string' ? { ...message, content: partsOf(message.content) } : message,
  );
  return { ...variables, messages };
}

function parse(source: string): readonly Statement[] {
  try {
    return parseTemplate(source);
  } catch (cause) {
    throw new ModelError('malformed-tokenizer', `the chat template does not parse: ${causeText(cause)}`, { cause });
  }
}

/** The time of one rendering, including the conversion of its variables. Time in which the thread got no CPU does not count. */
class RenderClock {
  readonly #endsAt = performance.now() + MAX_RENDER_MS;
  readonly #cpuEndsAt = cpuMs() + MAX_RENDER_MS;

  /** @throws TemplateError when the time is over */
  check(): void {
    if (performance.now() > this.#endsAt && cpuMs() > this.#cpuEndsAt) {
      throw new TemplateError('the rendering takes too long; send fewer or shorter messages');
    }
  }
}

function cpuMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}

/** @throws Error when the variables have more than {@link MAX_CHAT_VALUES} values */
function checkSize(variables: TemplateVariables): void {
  const pending: unknown[] = [variables];
  let count = 0;
  for (let value = pending.pop(); value !== undefined; value = pending.pop()) {
    const inner = typeof value === 'object' && value !== null ? Object.values(value) : [];
    count += inner.length;
    if (count > MAX_CHAT_VALUES)
      throw new Error(`the variables have more than ${MAX_CHAT_VALUES} values; send fewer messages`);
    // An `undefined` on the list would end the loop early.
    for (const each of inner) pending.push(each ?? null);
  }
}

const MONTHS = [
  'January',
  'February',
  'March',
  'April',
  'May',
  'June',
  'July',
  'August',
  'September',
  'October',
  'November',
  'December',
];
const DAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];
/** Letters of a short name. */
const SHORT = 3;

/** Directives of Python's `strftime` that chat templates use, in English on every machine. */
const DIRECTIVES: Readonly<Record<string, (date: Date) => string>> = {
  Y: (date) => String(date.getFullYear()),
  y: (date) => twoDigits(date.getFullYear() % 100),
  m: (date) => twoDigits(date.getMonth() + 1),
  d: (date) => twoDigits(date.getDate()),
  H: (date) => twoDigits(date.getHours()),
  M: (date) => twoDigits(date.getMinutes()),
  S: (date) => twoDigits(date.getSeconds()),
  I: (date) => twoDigits(date.getHours() % 12 || 12),
  p: (date) => (date.getHours() < 12 ? 'AM' : 'PM'),
  j: (date) => String(dayOfYear(date)).padStart(3, '0'),
  b: (date) => month(date).slice(0, SHORT),
  B: (date) => month(date),
  a: (date) => day(date).slice(0, SHORT),
  A: (date) => day(date),
  '%': () => '%',
};

/** Formats a local time as Python's `strftime` does; an unknown directive stays unchanged. `%-d` has no zeros in front. */
export function formatTime(date: Date, format: string): string {
  return format.replaceAll(/%(-?)([a-zA-Z%])/g, (written, sign: string, directive: string) => {
    const text = DIRECTIVES[directive]?.(date) ?? written;
    return sign === '' ? text : text.replace(/^0+(?=\d)/, '');
  });
}

const month = (date: Date): string => MONTHS[date.getMonth()] ?? '';
const day = (date: Date): string => DAYS[date.getDay()] ?? '';
const MS_A_DAY = 86_400_000;
const dayOfYear = (date: Date): number =>
  (Date.UTC(date.getFullYear(), date.getMonth(), date.getDate()) - Date.UTC(date.getFullYear(), 0, 0)) / MS_A_DAY;
const twoDigits = (value: number): string => String(value).padStart(2, '0');
