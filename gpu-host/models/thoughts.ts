import type { Tokenizer } from './tokenizer.ts';

/** How a model writes a thought before its answer. */
export interface ThoughtFormat {
  /** Text between the prompt and the thought, as the template writes it: `<think>\n`. A prompt may end with it. */
  readonly open: string;
  /**
   * Text between the thought and the answer, as the template writes it: `\n</think>\n\n`, or
   * `<|end|><|start|>assistant<|channel|>final<|message|>`. Write it to end a thought.
   */
  readonly close: string;
  /** Marks to look for in generated text, whose white space may differ from the template's: `<think>`, `<|channel|>analysis<|message|>`. */
  readonly begin: string;
  /** The first mark of `close`: `</think>`, `<|end|>`. */
  readonly end: string;
  /** The member of an assistant's message in which the template reads a thought; null if it reads none. */
  readonly field: ThoughtField | null;
  readonly source: 'setting' | 'template' | 'tokens';
}

export type ThoughtField = 'reasoning_content' | 'reasoning' | 'thinking';

/** The marks of a model in `pie.toml`; false for a model whose thoughts are part of its answers. */
export type ThoughtSetting = { readonly open: string; readonly close: string } | false;

export interface ThoughtSources {
  readonly setting?: ThoughtSetting | undefined;
  /** The chat template applied to variables. Errors of it count as a template that refuses the conversation. */
  readonly render: (variables: Readonly<Record<string, unknown>>) => string;
  /** Spellings of the tokenizer's added tokens, special or not. */
  readonly addedTokens: Iterable<string>;
}

const FIELDS: readonly ThoughtField[] = ['reasoning_content', 'reasoning', 'thinking'];
const QUESTION = 'pieQuestion';
const THOUGHT = 'pieThought';
const ANSWER = 'pieAnswer';

/** Marks of thoughts that are added tokens of published models, with the white space that these models write. */
const KNOWN: readonly (Pick<ThoughtFormat, 'open' | 'close'> & { readonly tokens: readonly string[] })[] = [
  ...[
    ['<think>', '</think>'],
    ['<thinking>', '</thinking>'],
    ['<thought>', '</thought>'],
    ['<reasoning>', '</reasoning>'],
    ['<seed:think>', '</seed:think>'],
    ['[THINK]', '[/THINK]'],
    ['◁think▷', '◁/think▷'],
    ['<|begin_of_thought|>', '<|end_of_thought|>'],
  ].map(([open = '', close = '']) => ({ tokens: [open, close], open: `${open}\n`, close: `\n${close}\n\n` })),
  {
    tokens: ['<|START_THINKING|>', '<|END_THINKING|>', '<|START_RESPONSE|>'],
    open: '<|START_THINKING|>',
    close: '<|END_THINKING|><|START_RESPONSE|>',
  },
  { tokens: ['<|inner_prefix|>', '<|inner_suffix|>'], open: '<|inner_prefix|>', close: '<|inner_suffix|>' },
  {
    tokens: ['<|start|>', '<|channel|>', '<|message|>', '<|end|>'],
    open: '<|channel|>analysis<|message|>',
    close: '<|end|><|start|>assistant<|channel|>final<|message|>',
  },
];

/** The format of a model's thoughts with the switches of its template, as `wit/tokenize.wit` describes both. */
export type ModelThoughts = ThoughtFormat & ThoughtSwitches;

const described = new WeakMap<Tokenizer, Map<string, ModelThoughts | null>>();

/** The thoughts of a model, from its tokenizer and its setting; null for a model without thoughts. Renders the template at the first call only. */
export function thoughtsOf(tokenizer: Tokenizer, setting: ThoughtSetting | undefined): ModelThoughts | null {
  const bySetting = described.get(tokenizer) ?? new Map<string, ModelThoughts | null>();
  described.set(tokenizer, bySetting);
  const key = JSON.stringify(setting ?? null);
  const known = bySetting.get(key);
  if (known !== undefined) return known;
  const { addedTokens, chatTemplate } = tokenizer;
  const render: ThoughtSources['render'] = (variables) => tokenizer.renderChat(variables);
  const format = deriveThoughts({ setting, render, addedTokens });
  const thoughts = format && { ...format, ...thoughtSwitches(chatTemplate ?? '', render) };
  bySetting.set(key, thoughts);
  return thoughts;
}

/**
 * The format of a model's thoughts: its setting, else the text that its template puts around `reasoning_content`, else known added tokens; null
 * if there is none of these, and for the setting false.
 */
export function deriveThoughts({ setting, render, addedTokens }: ThoughtSources): ThoughtFormat | null {
  if (setting === false) return null;
  const written = probes(render).next().value ?? null;
  if (setting !== undefined) {
    return formatOf(setting.open, setting.close, written?.field ?? null, 'setting');
  }
  if (written !== null) return written;
  const tokens = new Set(addedTokens);
  const known = KNOWN.find((each) => each.tokens.every((token) => tokens.has(token)));
  return known === undefined ? null : formatOf(known.open, known.close, null, 'tokens');
}

function formatOf(
  open: string,
  close: string,
  field: ThoughtFormat['field'],
  source: ThoughtFormat['source'],
): ThoughtFormat {
  const trimmed = close.trim();
  return { open, close, begin: open.trim(), end: LEADING_TAG.exec(trimmed)?.[0] ?? trimmed, field, source };
}

/** A mark such as `<think>`, `<|end|>`, `[/THINK]` or `◁think▷`. */
const TAG = '(?:<[^<>\\s]+>|\\[[^\\[\\]\\s]+\\]|◁[^◁▷\\s]+▷)';
const LEADING_TAG = new RegExp(`^${TAG}`);
const ANY_TAG = new RegExp(TAG);
const FIRST_TAG = new RegExp(`^[\\s\\S]*?${TAG}`);
const TRAILING_TAG = new RegExp(`${TAG}\\s*$`);

const CALL = { id: 'call00000', type: 'function', function: { name: 'pieProbe', arguments: {} } };
const CALLED = [{ role: 'tool', content: '{}', tool_call_id: CALL.id, name: CALL.function.name }];

/** The formats that a template shows: in a final answer, or only in a turn that calls a tool. */
function* probes(render: ThoughtSources['render']): Generator<ThoughtFormat, undefined> {
  for (const field of FIELDS) {
    const thought = { role: 'assistant', content: ANSWER, [field]: THOUGHT };
    const found =
      probe(render, field, [thought]) ?? probe(render, field, [{ ...thought, tool_calls: [CALL] }, ...CALLED]);
    if (found !== null) yield found;
  }
}

function probe(
  render: ThoughtSources['render'],
  field: ThoughtField,
  answered: readonly object[],
): ThoughtFormat | null {
  const asked = { role: 'user', content: QUESTION };
  // Templates that show thoughts only on request are asked to.
  const switches = { enable_thinking: true, thinking: true };
  let prompt: string;
  let whole: string;
  try {
    prompt = render({ ...switches, messages: [asked], add_generation_prompt: true });
    whole = render({ ...switches, messages: [asked, ...answered], add_generation_prompt: false });
  } catch {
    return null;
  }
  const thoughtAt = whole.indexOf(THOUGHT);
  const answerAt = whole.indexOf(ANSWER, thoughtAt);
  if (thoughtAt === -1 || answerAt === -1) return null;
  const before = whole.slice(0, thoughtAt);
  const between = whole.slice(thoughtAt + THOUGHT.length, answerAt);
  // A template may write calls before the answer of their turn.
  const close = between.includes(CALL.function.name) ? (FIRST_TAG.exec(between)?.[0] ?? '') : between;
  const open = openingOf(before, prompt);
  // Without marks, a thought cannot be told from its answer.
  return open.trim() === '' || close.trim() === '' ? null : formatOf(open, close, field, 'template');
}

/** The part of `before`, the text before a thought, that belongs to the thought. @param prompt text before any answer, which may open a thought */
function openingOf(before: string, prompt: string): string {
  let common = 0;
  while (common < before.length && before[common] === prompt[common]) common++;
  // Two marks may begin alike: `<think>`, `</think>`.
  const mark = Math.max(...['<', '[', '◁'].map((char) => before.lastIndexOf(char, common - 1)));
  if (mark !== -1 && mark < common && !/[>\]▷]/.test(before.slice(mark, common))) common = mark;
  const rest = before.slice(common);
  if (rest.trim() !== '') return rest;
  // The prompt opens the thought: by words that the template shows in no history, or by a mark.
  const words = prompt.slice(common);
  return words.trim() !== '' && !ANY_TAG.test(words) ? words : (TRAILING_TAG.exec(before)?.[0] ?? '');
}

/** Efforts of requests, from none to the highest. */
export const EFFORTS = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh'] as const;
export type Effort = (typeof EFFORTS)[number];

/** The variables with which a template turns thoughts on and off. */
export interface ThoughtSwitches {
  /** Boolean variables: `enable_thinking` (Qwen, GLM, SmolLM), `thinking` (DeepSeek, Granite, Kimi). */
  readonly toggles: readonly string[];
  /** Values of `reasoning_effort` that the template takes, in rising order; empty if it does not read this variable. */
  readonly efforts: readonly Effort[];
}

const TOGGLES = ['enable_thinking', 'thinking'];
/** Efforts that models with an effort know, even if their template names none. */
const COMMON_EFFORTS: ReadonlySet<Effort> = new Set(['low', 'medium', 'high']);

/**
 * The switches that change a template's prompt. A value of `reasoning_effort` counts if the template names it or it is a common one, and the template
 * does not refuse it.
 *
 * @param template Jinja source
 */
export function thoughtSwitches(template: string, render: ThoughtSources['render']): ThoughtSwitches {
  /** The prompt with a variable; null where the template refuses it. */
  const promptWith = (variables: Readonly<Record<string, unknown>>): string | null => {
    try {
      return render({ ...variables, messages: [{ role: 'user', content: QUESTION }], add_generation_prompt: true });
    } catch {
      return null;
    }
  };
  const prompts = EFFORTS.map((effort) => ({ effort, prompt: promptWith({ reasoning_effort: effort }) })).filter(
    ({ effort, prompt }) =>
      prompt !== null && (COMMON_EFFORTS.has(effort) || new RegExp(`(['"])${effort}\\1`).test(template)),
  );
  const hasEfforts = new Set(prompts.map(({ prompt }) => prompt)).size > 1;
  return {
    toggles: TOGGLES.filter((name) => promptWith({ [name]: true }) !== promptWith({ [name]: false })),
    efforts: hasEfforts ? prompts.map(({ effort }) => effort) : [],
  };
}
