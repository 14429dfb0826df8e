import { log } from '@pie/inferlet';
import { RequestError } from './request.ts';
import { TEXT_PARAMETER, type Tool, type ToolChoice } from './tools.ts';

/** A tool as clients send it: with its members beside `type` (responses) or in a member that has the name of the type (chat). */
export interface RequestedTool extends ToolMembers {
  readonly type: string;
  readonly function?: ToolMembers;
  readonly custom?: ToolMembers;
}

interface ToolMembers {
  readonly name?: string;
  readonly description?: string;
  readonly parameters?: object;
  readonly strict?: boolean;
  readonly format?: RequestedFormat;
}

/** The form of a custom tool's text. The chat API puts the members of a grammar into a member `grammar`. */
interface RequestedFormat extends GrammarMembers {
  readonly type: string;
  readonly grammar?: GrammarMembers;
}

interface GrammarMembers {
  readonly syntax?: string;
  readonly definition?: string;
}

/** `tool_choice` as clients send it. */
export type RequestedChoice =
  | string
  | {
      readonly type: string;
      readonly name?: string;
      readonly function?: { readonly name?: string };
      readonly custom?: { readonly name?: string };
      readonly mode?: string;
      readonly tools?: readonly RequestedTool[];
      readonly allowed_tools?: { readonly mode?: string; readonly tools?: readonly RequestedTool[] };
    };

/** `chat`: a tool's members are in a member with the name of its type. `responses`: they stand beside `type`. */
export type ToolForm = 'chat' | 'responses';

/** The tools of a request that the model may see, and those that it may call. */
export interface RequestedTools {
  readonly tools: readonly Tool[];
  readonly toolChoice: ToolChoice;
}

/** Tools that OpenAI runs or defines itself. */
const HOSTED =
  /^(web_search|computer|code_interpreter|file_search|image_generation|mcp|local_shell|shell|apply_patch|tool_search|namespace|programmatic_tool_calling)/;

/**
 * Reads `tools` and `tool_choice`. Leaves hosted tools out when the model may answer without them, and says so in the log.
 *
 * @throws RequestError for a tool that cannot be offered, with its place and its type
 */
export function requestedTools(
  requested: readonly RequestedTool[],
  choice: RequestedChoice | undefined,
  form: ToolForm,
): RequestedTools {
  const tools: Tool[] = [];
  const hosted: string[] = [];
  for (const [i, tool] of requested.entries()) {
    const at = `tools[${i}]`;
    if (tool.type === 'function' || tool.type === 'custom') {
      const { members, place } = membersOf(tool, at, form);
      const { name, ...rest } = tool.type === 'function' ? functionTool(members, place) : customTool(members, place);
      if (tools.some((other) => other.name === name))
        throw new RequestError(`Two tools are named "${name}".`, `${place}.name`);
      tools.push({ name, ...rest });
    } else if (HOSTED.test(tool.type)) {
      hosted.push(tool.type);
    } else {
      throw new RequestError(
        `${at} has the type "${tool.type}", which is not known here: offer a tool of the type function or custom.`,
        `${at}.type`,
      );
    }
  }
  if (hosted.length > 0)
    log(`No model here has these tools, so the answer does not use them: ${hosted.join(', ')}`, 'warn');
  return { tools, toolChoice: toolChoiceOf(choice, tools, hosted, form) };
}

function membersOf(
  tool: RequestedTool,
  at: string,
  form: ToolForm,
): { readonly members: ToolMembers; readonly place: string } {
  if (form === 'responses') return { members: tool, place: at };
  const place = `${at}.${tool.type}`;
  const members = tool.type === 'custom' ? tool.custom : tool.function;
  if (members) return { members, place };
  throw new RequestError(`${place} is missing: it holds the name of the tool.`, place);
}

function functionTool({ name, description, parameters, strict = false }: ToolMembers, place: string): Tool {
  return { name: checkedName(name, place), description, parameters, strict, at: `${place}.parameters` };
}

function customTool({ name, description, format }: ToolMembers, place: string): Tool {
  const parameters = {
    type: 'object',
    properties: { [TEXT_PARAMETER]: { type: 'string' } },
    required: [TEXT_PARAMETER],
    additionalProperties: false,
  };
  return { name: checkedName(name, place), description, parameters, ...textFormatOf(format, place) };
}

function textFormatOf(format: RequestedFormat | undefined, place: string): Pick<Tool, 'text' | 'at'> {
  if (format === undefined || format.type === 'text') return { text: { type: 'text' }, at: place };
  if (format.type !== 'grammar')
    throw new RequestError(
      `${place}.format has the type "${format.type}": it must be text or grammar.`,
      `${place}.format.type`,
    );
  const at = format.grammar ? `${place}.format.grammar` : `${place}.format`;
  const { syntax, definition } = format.grammar ?? format;
  if (definition === undefined) throw new RequestError(`${at}.definition is missing.`, `${at}.definition`);
  if (syntax !== 'lark' && syntax !== 'regex')
    throw new RequestError(`${at}.syntax must be lark or regex.`, `${at}.syntax`);
  return { text: { type: syntax, definition }, at: `${at}.definition` };
}

function checkedName(name: string | undefined, place: string): string {
  const at = `${place}.name`;
  if (name === undefined) throw new RequestError(`${at} is missing.`, at);
  if (/^[\w.-]{1,64}$/.test(name)) return name;
  const shown = name.length > 80 ? `${name.slice(0, 80)}…` : name;
  throw new RequestError(
    `"${shown}" is not a valid name of a tool: 1 to 64 letters, digits, "_", "-" and "." are allowed.`,
    at,
  );
}

function toolChoiceOf(
  choice: RequestedChoice | undefined,
  tools: readonly Tool[],
  hosted: readonly string[],
  form: ToolForm,
): ToolChoice {
  const names = tools.map(({ name }) => name);
  if (choice === undefined) return { mode: 'auto', names };
  if (typeof choice === 'string') {
    if (choice === 'required') checkCallable(names, hosted);
    else if (choice !== 'none' && choice !== 'auto')
      throw new RequestError('`tool_choice` must be none, auto, required or an object.', 'tool_choice');
    return { mode: choice, names };
  }
  const { type } = choice;
  if (type === 'allowed_tools') return allowedTools(choice, names, hosted, form);
  if (type === 'function' || type === 'custom') {
    const at = form === 'chat' ? `tool_choice.${type}.name` : 'tool_choice.name';
    const name = form === 'chat' ? choice[type]?.name : choice.name;
    if (name === undefined) throw new RequestError(`${at} is missing.`, at);
    if (!names.includes(name)) throw new RequestError(`There is no tool "${name}" among \`tools\`.`, 'tool_choice');
    return { mode: 'required', names: [name] };
  }
  throw new RequestError(
    HOSTED.test(type)
      ? `\`tool_choice\` asks for the hosted tool "${type}", which no model here has: set \`tool_choice\` to auto, or offer a function instead.`
      : `\`tool_choice\` has the type "${type}", which is not known here: use function, custom or allowed_tools.`,
    'tool_choice',
  );
}

function allowedTools(
  choice: Exclude<RequestedChoice, string>,
  names: readonly string[],
  hosted: readonly string[],
  form: ToolForm,
): ToolChoice {
  const at = choice.allowed_tools ? 'tool_choice.allowed_tools' : 'tool_choice';
  const { mode = 'auto', tools } = choice.allowed_tools ?? choice;
  if (!tools) throw new RequestError(`${at}.tools is missing.`, `${at}.tools`);
  if (mode !== 'auto' && mode !== 'required')
    throw new RequestError(`${at}.mode must be auto or required.`, `${at}.mode`);
  const allowed = tools.flatMap((tool, i) => {
    if (HOSTED.test(tool.type)) return [];
    const { members, place } = membersOf(tool, `${at}.tools[${i}]`, form);
    if (members.name !== undefined && names.includes(members.name)) return [members.name];
    throw new RequestError(`There is no tool "${members.name ?? ''}" among \`tools\`.`, `${place}.name`);
  });
  if (mode === 'required') checkCallable(allowed, hosted);
  return { mode, names: [...new Set(allowed)] };
}

/** Throws when a call is required, but there is no tool that the model can call. */
function checkCallable(names: readonly string[], hosted: readonly string[]): void {
  if (names.length > 0) return;
  const text =
    hosted.length > 0
      ? `\`tool_choice\` asks for a call, but no model here has the hosted tools (${hosted.join(', ')}): set \`tool_choice\` to auto, or offer a function.`
      : '`tool_choice` asks for a call, but there are no `tools`.';
  throw new RequestError(text, 'tool_choice');
}
