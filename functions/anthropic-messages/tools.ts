import { log } from '@pie/inferlet';
import { RequestError } from '../openai-shared/request.ts';
import type { Tool, ToolChoice } from '../openai-shared/tools.ts';

/** A tool as clients send it. */
export interface RequestedTool {
  readonly type?: string;
  readonly name?: string;
  readonly description?: string;
  readonly input_schema?: object;
  readonly strict?: boolean;
}

/** `tool_choice` as clients send it. */
export interface RequestedChoice {
  readonly type: string;
  readonly name?: string;
  readonly disable_parallel_tool_use?: boolean;
}

/** Tools that Anthropic runs, or whose input it defines. */
const DEFINED =
  /^(advisor|bash|browser|code_execution|computer|mcp_toolset|memory|str_replace|text_editor|tool_search|web_fetch|web_search)/;

/**
 * Reads `tools`. Leaves tools out that Anthropic runs or defines, and says so in the log.
 *
 * @throws RequestError for a tool that cannot be offered, with its place and its type
 */
export function toolsOf(requested: readonly RequestedTool[]): {
  readonly tools: readonly Tool[];
  /** Types and names of the tools that are left out. */
  readonly leftOut: ReadonlyMap<string, string>;
} {
  const tools: Tool[] = [];
  const leftOut = new Map<string, string>();
  for (const [
    i,
    { type = 'custom', name, description, input_schema: parameters, strict = false },
  ] of requested.entries()) {
    const at = `tools[${i}]`;
    if (type !== 'custom') {
      if (!DEFINED.test(type))
        throw new RequestError(
          `${at} has the type "${type}", which is not known here: offer a tool of the type custom, with an \`input_schema\`.`,
          `${at}.type`,
        );
      leftOut.set(name ?? type, type);
      continue;
    }
    if (parameters === undefined) throw new RequestError(`${at}.input_schema is missing.`, `${at}.input_schema`);
    const checked = checkedName(name, `${at}.name`);
    if (tools.some((other) => other.name === checked))
      throw new RequestError(`Two tools are named "${checked}".`, `${at}.name`);
    tools.push({ name: checked, description, parameters, strict, at: `${at}.input_schema` });
  }
  if (leftOut.size > 0)
    log(
      `No model here has these tools, so the answer does not use them: ${[...new Set(leftOut.values())].join(', ')}`,
      'warn',
    );
  return { tools, leftOut };
}

function checkedName(name: string | undefined, at: string): string {
  if (name === undefined) throw new RequestError(`${at} is missing.`, at);
  if (/^[\w.-]{1,128}$/.test(name)) return name;
  const shown = name.length > 80 ? `${name.slice(0, 80)}…` : name;
  throw new RequestError(
    `"${shown}" is not a valid name of a tool: 1 to 128 letters, digits, "_", "-" and "." are allowed.`,
    at,
  );
}

/**
 * Reads `tool_choice`.
 *
 * @throws RequestError when it asks for a call of a tool that the model cannot call
 */
export function toolChoiceOf(
  { type, name }: RequestedChoice,
  { tools, leftOut }: ReturnType<typeof toolsOf>,
): ToolChoice {
  const names = tools.map((tool) => tool.name);
  if (type === 'auto' || type === 'none') return { mode: type, names };
  if (type === 'any') {
    if (names.length > 0) return { mode: 'required', names };
    throw new RequestError(
      leftOut.size > 0
        ? `\`tool_choice\` asks for a call, but no model here has the tools ${[...leftOut.values()].join(', ')}: set its type to auto, or offer a tool of the type custom.`
        : '`tool_choice` asks for a call, but there are no `tools`.',
      'tool_choice',
    );
  }
  if (type === 'tool') {
    if (name === undefined) throw new RequestError('tool_choice.name is missing.', 'tool_choice.name');
    if (names.includes(name)) return { mode: 'required', names: [name] };
    const leftOutType = leftOut.get(name);
    throw new RequestError(
      leftOutType === undefined
        ? `There is no tool "${name}" among \`tools\`.`
        : `\`tool_choice\` asks for "${name}", a tool of the type "${leftOutType}", which no model here has: set its type to auto, or offer a tool of the type custom.`,
      'tool_choice.name',
    );
  }
  throw new RequestError(
    `\`tool_choice\` has the type "${type}", which is not known here: use auto, any, tool or none.`,
    'tool_choice.type',
  );
}
