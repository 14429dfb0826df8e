import { Environment, Interpreter, Template } from '@huggingface/jinja';
import { z } from 'zod';
import { causeText, ModelError } from './errors.ts';
import { formatTime } from './format-time.ts';

/** One turn of a conversation. */
export interface ChatMessage {
  /** `system`, `user`, `assistant` or `tool`. */
  readonly role: string;
  readonly content: string;
}

/** What a template may name, plain JSON values. A template is the operator's; its variables may be a stranger's. */
export type TemplateVariables = Readonly<Record<string, unknown>>;

/**
 * Nodes of a template that one rendering may evaluate, and the time that it may take: it blocks the thread, and two nested loops over a
 * stranger's messages are quadratic.
 */
const MAX_STEPS = 1_000_000;
const MAX_RENDER_MS = 100;
/** Values in the variables, each message three of them and one: they become Jinja's own in one go, before the first step. */
export const MAX_CHAT_VALUES = 32_768;
/** Numbers that `range` hands out at once. */
const MAX_RANGE = 100_000;

const namedTemplates = z.array(z.looseObject({ name: z.string(), template: z.string() }));

/** The template of a `chat_template` field: a text, or a list in which the one named `default` is meant. */
export function pickChatTemplate(field: unknown): string | null {
  if (typeof field === 'string') return field;
  const named = namedTemplates.safeParse(field);
  if (!named.success) return null;
  return (named.data.find(({ name }) => name === 'default') ?? named.data[0])?.template ?? null;
}

/**
 * A renderer for a Jinja chat template as Hugging Face models carry it. Variables become Jinja's own values, in maps: nothing of
 * JavaScript's objects, their prototypes least of all, can be named by a template.
 *
 * @param specialTokens `bos_token`, `eos_token`, … as the template may name them, unless the variables have their own
 * @throws ModelError `malformed-tokenizer` when the template does not parse; rendering throws `invalid-messages`, with the template's own
 * words when it refuses the variables, and when it takes too long over them
 */
export function compileChatTemplate(
  source: string,
  specialTokens: Readonly<Record<string, string>>,
): (variables: TemplateVariables) => string {
  const program = parse(source);
  return (variables) => {
    try {
      const clock = new RenderClock();
      checkSize(variables);
      const environment = new Environment();
      const given = { ...specialTokens, tools: null, documents: null, ...variables };
      for (const [name, value] of Object.entries({ ...GLOBALS, ...given })) environment.set(name, value);
      return String(new BoundedInterpreter(environment, clock).run(program).value);
    } catch (cause) {
      const message = `the chat template refused the messages: ${causeText(cause)}`;
      throw new ModelError('invalid-messages', message, { cause });
    }
  };
}

function parse(source: string): Template['parsed'] {
  try {
    return new Template(source).parsed;
  } catch (cause) {
    throw new ModelError('malformed-tokenizer', `the chat template does not parse: ${causeText(cause)}`, { cause });
  }
}

/** What every template may use besides the language; the same as the library's own, with a bound on `range`. */
const GLOBALS = {
  true: true,
  false: false,
  none: null,
  True: true,
  False: false,
  None: null,
  raise_exception: (message: unknown): never => {
    throw new Error(String(message));
  },
  range: (first: number, second?: number, step = 1): number[] => {
    const [start, stop] = second === undefined ? [0, first] : [first, second];
    const count = Math.max(0, Math.ceil((stop - start) / step));
    if (!(count <= MAX_RANGE)) throw new Error(`range() of ${count} numbers; ${MAX_RANGE} is the limit`);
    return Array.from({ length: count }, (_, i) => start + i * step);
  },
  strftime_now: (format: string): string => formatTime(new Date(), format),
};

/** The library's own declarations do not resolve by Node's rules: what is used of it. */
const Unbounded: new (
  environment: object,
) => {
  run(program: object): { readonly value: unknown };
  evaluate(node: object | undefined, environment: object): object;
} = Interpreter;

/** The time of one rendering, from before its variables are made Jinja's. What the thread did not get of its processor does not count. */
class RenderClock {
  readonly #endsAt = performance.now() + MAX_RENDER_MS;
  readonly #cpuEndsAt = cpuMs() + MAX_RENDER_MS;

  get late(): boolean {
    return performance.now() > this.#endsAt && cpuMs() > this.#cpuEndsAt;
  }
}

function cpuMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}

class BoundedInterpreter extends Unbounded {
  readonly #clock: RenderClock;
  #steps = 0;

  constructor(environment: object, clock: RenderClock) {
    super(environment);
    this.#clock = clock;
  }

  override evaluate(node: object | undefined, environment: object): object {
    // One step may turn all messages into JSON, so every step looks.
    if (++this.#steps > MAX_STEPS || this.#clock.late) {
      throw new Error('it takes too long over them; send fewer or shorter ones');
    }
    return super.evaluate(node, environment);
  }
}

/** @throws Error when there are more values than one rendering may have */
function checkSize(variables: TemplateVariables): void {
  const left: unknown[] = [variables];
  let count = 0;
  for (let value = left.pop(); value !== undefined; value = left.pop()) {
    const inner = typeof value === 'object' && value !== null ? Object.values(value) : [];
    count += inner.length;
    if (count > MAX_CHAT_VALUES) throw new Error(`they have more than ${MAX_CHAT_VALUES} values; send fewer`);
    for (const each of inner) left.push(each ?? null);
  }
}
