import { type Constraint, detokenize, InferletError, jsonSchema, specialTokens, tokenize } from '@pie/inferlet';
import { attempt, Compiled, settle, tokenize as tokenizer } from '@pie/inferlet/raw';
import { isRequestFault } from './faults.ts';
import { markerTokenOf } from './marker.ts';
import { RequestError } from './request.ts';

/** A function that the model may call. */
export interface Tool {
  readonly name: string;
  readonly description?: string;
  /** JSON schema of the arguments. */
  readonly parameters?: object;
  readonly strict?: boolean | null;
}

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
    if (!whole.startsWith(before)) return undefined;
    const end = detokenize(specialTokens(model).eos.slice(0, 1), { model, special: true });
    const match = /^(.*?)pie_probe(.*?)\{\s*"k"\s*:\s*1\s*\}(.*)$/s.exec(whole.slice(before.length));
    const [, open = '', middle = '', rest = ''] = match ?? [];
    if (open === '') return undefined;
    return { open, middle, close: (end === '' ? rest : (rest.split(end, 1)[0] ?? '')).trimEnd() };
  } catch (error) {
    // The template has no calls, or refuses the probe conversation.
    if (error instanceof InferletError && error.code === 'invalid-argument') return undefined;
    throw error;
  }
}

/** The names of the functions from which the model must call one; undefined when the model may answer without a call. */
export function forcedNames(
  tools: readonly Tool[],
  choice: string | { readonly name: string } | undefined,
): readonly string[] | undefined {
  if (choice === undefined || choice === 'auto' || choice === 'none') return undefined;
  if (tools.length === 0)
    throw new RequestError('`tool_choice` asks for a call, but there are no `tools`.', 'tool_choice');
  if (typeof choice === 'string') return tools.map(({ name }) => name);
  if (tools.some(({ name }) => name === choice.name)) return [choice.name];
  throw new RequestError(`There is no tool "${choice.name}" among \`tools\`.`, 'tool_choice');
}

/** Throws for invalid function names. */
export function checkTools(tools: readonly Tool[]): void {
  const names = new Set<string>();
  for (const [i, { name }] of tools.entries()) {
    const at = `tools[${i}].function.name`;
    if (!/^[\w.-]{1,64}$/.test(name)) {
      throw new RequestError(
        `"${name}" is not a valid function name: letters, digits, "_", "-" and "." are allowed.`,
        at,
      );
    }
    if (names.has(name)) throw new RequestError(`Two tools are named "${name}".`, at);
    names.add(name);
  }
}

/**
 * The constraint that enforces a tool's schema. A schema that no grammar can express is refused if the tool is `strict`; otherwise the
 * constraint requires only an object.
 */
export async function argumentsOf(model: string, { name, parameters, strict }: Tool): Promise<Constraint> {
  const schema = parameters === undefined || Object.keys(parameters).length === 0 ? { type: 'object' } : parameters;
  try {
    return await schemaConstraint(model, schema, `the parameters of "${name}"`, 'tools');
  } catch (error) {
    if (strict || !(error instanceof RequestError)) throw error;
    return jsonSchema({ type: 'object' });
  }
}

/** A constraint from a schema, compiled once in advance, so that a faulty schema is reported before any generation. */
export async function schemaConstraint(
  model: string,
  schema: object,
  what: string,
  param: string,
): Promise<Constraint> {
  const compiled = new Compiled(model, { tag: 'json-schema', val: JSON.stringify(schema) });
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
  return jsonSchema(schema);
}
