import {
  type Constraint,
  detokenize,
  ebnf,
  InferletError,
  jsonSchema,
  log,
  map,
  opensThought,
  regex,
  specialTokens,
  thoughtFormat,
  tokenize,
} from '@pie/inferlet';
import { attempt, Compiled, settle, tokenize as tokenizer } from '@pie/inferlet/raw';
import { isRequestFault } from './faults.ts';
import { gbnfOfLark, LarkError } from './lark.ts';
import { markerTokenOf } from './marker.ts';
import { NO_ARGUMENTS, takesNothing, withoutRefused } from './parameters.ts';
import { RequestError } from './request.ts';

/** A function that the model may call. */
export interface Tool {
  readonly name: string;
  readonly description?: string | undefined;
  /** JSON schema of the arguments. */
  readonly parameters?: object | undefined;
  readonly strict?: boolean;
  /** Set for a custom tool, which takes a text. Chat templates show it as a function with the one parameter {@link TEXT_PARAMETER}. */
  readonly text?: TextFormat;
  /** Place of the schema or of the grammar in the request, such as `tools[1].function.parameters`. */
  readonly at: string;
}

/** The form of a custom tool's text: any text, or a text of a grammar. */
export type TextFormat = { readonly type: 'text' } | { readonly type: 'lark' | 'regex'; readonly definition: string };

/** The tools that the model may call in this turn, by name. `required`: it must call one of them. `none`: chat templates show no tools. */
export interface ToolChoice {
  readonly mode: 'none' | 'auto' | 'required';
  readonly names: readonly string[];
}

/** The only parameter of the function as which a chat template shows a custom tool. */
export const TEXT_PARAMETER = 'input';

/** The form of a model's calls: `open` NAME `middle` ARGUMENTS `close`. */
export interface CallFormat {
  readonly open: string;
  readonly middle: string;
  readonly close: string;
  /** Text that begins a call. */
  readonly marker: string;
  /** Id of the marker's first token if it is a special token, which generated text omits; see `markerTokenOf`. */
  readonly markerToken: number | undefined;
}

const PROBE = 'pie_probe';
/** The format for models whose template has no calls: the Hermes format, which many such models know. */
const DEFAULT_FORMAT = { open: '<tool_call>\n{"name": "', middle: '", "arguments": ', close: '}\n</tool_call>' };

/** The call format of a model's own template, found by rendering a probe call. */
export function callFormat(model: string): CallFormat {
  const { open, middle, close } = probe(model) ?? DEFAULT_FORMAT;
  // The marker is the text before the JSON of the call or, if the call begins with JSON, the beginning of this JSON.
  const marker = open.split('{', 1)[0]?.trim() || open.trim();
  const ids = tokenize(marker, { model, special: true });
  const isHidden = (token: number) => detokenize([token], { model }) !== detokenize([token], { model, special: true });
  const { bos, eos } = specialTokens(model);
  const markerToken = markerTokenOf(ids, isHidden, bos === null ? eos : [...eos, bos]);
  return { open, middle, close, marker, markerToken };
}

function probe(model: string): typeof DEFAULT_FORMAT | undefined {
  const tools = [{ type: 'function', function: { name: PROBE, description: '', parameters: { type: 'object' } } }];
  const asked = [{ role: 'user', content: 'x' }];
  const call = { id: 'call00000', type: 'function', function: { name: PROBE, arguments: { k: 1 } } };
  const render = (messages: readonly object[], add_generation_prompt: boolean): string =>
    attempt(() => tokenizer.renderChat(model, JSON.stringify({ messages, tools, add_generation_prompt })));
  try {
    const before = render(asked, true);
    const whole = render([...asked, { role: 'assistant', content: '', tool_calls: [call] }], false);
    const thoughts = thoughtFormat(model);
    // A prompt may open a thought, which the answer's turn may lack.
    const turn =
      thoughts && opensThought(before, thoughts) ? before.slice(0, before.lastIndexOf(thoughts.begin)) : before;
    if (!whole.startsWith(turn)) return undefined;
    const end = detokenize(specialTokens(model).eos.slice(0, 1), { model, special: true });
    const match = /^(.*?)pie_probe(.*?)\{\s*"k"\s*:\s*1\s*\}(.*)$/s.exec(whole.slice(turn.length));
    const [, opening = '', middle = '', rest = ''] = match ?? [];
    // Some templates put an empty thought before a call.
    const thoughtEnd = thoughts ? opening.indexOf(thoughts.end) : -1;
    const open = thoughts && thoughtEnd >= 0 ? opening.slice(thoughtEnd + thoughts.end.length).trimStart() : opening;
    if (open === '') return undefined;
    return { open, middle, close: (end === '' ? rest : (rest.split(end, 1)[0] ?? '')).trimEnd() };
  } catch (error) {
    // The template has no calls, or refuses the probe conversation.
    if (error instanceof InferletError && error.code === 'invalid-argument') return undefined;
    throw error;
  }
}

/** The constraint on one tool's arguments, and the places of the keywords that it leaves out. */
interface ArgumentsConstraint {
  readonly constraint: Constraint;
  /** JSON pointers into the tool's parameters. `#` stands for the whole schema: then the arguments are any object. */
  readonly dropped: readonly string[];
}

/** Maximum keywords that are left out of one schema. */
const MAX_DROPPED = 16;

/**
 * The constraint that enforces a tool's schema. If no grammar can keep a keyword, a `strict` tool is refused, or its arguments are if the keyword can be
 * checked at their end; for other tools, the constraint leaves this keyword out and keeps the others.
 */
async function argumentsOf(
  model: string,
  { name, parameters, strict = false, at }: Tool,
): Promise<ArgumentsConstraint> {
  let schema: object = takesNothing(parameters) ? NO_ARGUMENTS : (parameters ?? {});
  const dropped: string[] = [];
  for (;;) {
    try {
      await checkSchema(model, schema, `the parameters of "${name}"`, at);
      return { constraint: jsonSchema(schema, { checked: strict }), dropped };
    } catch (error) {
      if (strict || !(error instanceof RequestError)) throw error;
      const rest = dropped.length < MAX_DROPPED ? withoutRefused(schema, error.message) : undefined;
      log(`${error.message}. The tool is not strict, so this constraint is left out.`, 'warn');
      if (!rest) return { constraint: jsonSchema({ type: 'object' }), dropped: [...dropped, '#'] };
      schema = rest.schema;
      dropped.push(rest.pointer);
    }
  }
}

/** The constraints on the arguments of all tools that the model may call. */
export interface CallConstraints {
  /** By the names of the tools. */
  readonly byName: ReadonlyMap<string, Constraint>;
  /** The places that the constraints leave out, with the tool before each pointer: `weather#/properties/city/pattern`. */
  readonly dropped: readonly string[];
}

/** Compiles the schemas of all tools that the model may call. @throws RequestError for a strict tool that no grammar can keep */
export async function callConstraints(
  model: string,
  tools: readonly Tool[],
  { mode, names }: ToolChoice,
): Promise<CallConstraints> {
  const callable = mode === 'none' ? [] : tools.filter(({ name }) => names.includes(name));
  // An invocation may hold few grammars at the same time.
  const made = await map(callable, async (tool) => ({ tool, ...(await argumentsOf(model, tool)) }));
  return {
    byName: new Map(made.map(({ tool, constraint }) => [tool.name, constraint])),
    dropped: made.flatMap(({ tool, dropped }) => dropped.map((pointer) => `${tool.name}${pointer}`)),
  };
}

/** The member with which a function tells the gateway what its answer left out; the gateway makes a header of it. Empty when nothing was left out. */
export function reportOf({ dropped }: CallConstraints): { readonly x_pie_dropped_constraints?: readonly string[] } {
  return dropped.length > 0 ? { x_pie_dropped_constraints: dropped } : {};
}

/** The constraint that enforces the grammar of a custom tool; undefined for a tool that takes any text. @throws RequestError for a faulty grammar */
export async function textConstraint(model: string, { name, text, at }: Tool): Promise<Constraint | undefined> {
  if (text === undefined || text.type === 'text') return undefined;
  const what = `the grammar of "${name}"`;
  if (text.type === 'regex') {
    await checkGrammar(model, { tag: 'regex', val: text.definition }, what, at);
    return regex(text.definition);
  }
  const gbnf = gbnfOf(text.definition, what, at);
  await checkGrammar(model, { tag: 'ebnf', val: gbnf }, what, at);
  return ebnf(gbnf);
}

function gbnfOf(lark: string, what: string, at: string): string {
  try {
    return gbnfOfLark(lark);
  } catch (error) {
    if (!(error instanceof LarkError)) throw error;
    throw new RequestError(`No grammar can keep ${what}: ${error.message}`, at);
  }
}

/** A constraint from a schema, compiled once in advance, so that a faulty schema is reported before any generation. */
export async function schemaConstraint(
  model: string,
  schema: object,
  what: string,
  param: string,
): Promise<Constraint> {
  await checkSchema(model, schema, what, param);
  return jsonSchema(schema);
}

const checkSchema = (model: string, schema: object, what: string, param: string): Promise<void> =>
  checkGrammar(model, { tag: 'json-schema', val: JSON.stringify(schema) }, what, param);

/** Compiles a grammar once. @throws RequestError, which names `what`, when it cannot be compiled */
async function checkGrammar(
  model: string,
  source: ConstructorParameters<typeof Compiled>[1],
  what: string,
  param: string,
): Promise<void> {
  const compiled = new Compiled(model, source);
  try {
    await settle(compiled.ready());
  } catch (error) {
    if (!(error instanceof InferletError)) throw error;
    // A schema may take too much time or memory to compile.
    if (!isRequestFault(error.code) && error.code !== 'limit-exceeded') throw error;
    throw new RequestError(`No grammar can keep ${what}: ${error.message}`, param);
  } finally {
    compiled.drop();
  }
}
