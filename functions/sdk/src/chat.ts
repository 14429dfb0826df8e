/** A call that the assistant made, in a conversation. */
export interface ToolCall {
  readonly id?: string;
  readonly type?: 'function';
  readonly function: {
    readonly name: string;
    /** An object is what most templates expect; a text is taken as it is. */
    readonly arguments: string | Readonly<Record<string, unknown>>;
  };
}

/** One turn of a conversation, with whatever members the model's template knows. */
export interface ChatMessage {
  /** `system`, `user`, `assistant` or `tool`. */
  readonly role: string;
  readonly content: string;
  readonly name?: string;
  /** What the assistant called. */
  readonly tool_calls?: readonly ToolCall[];
  /** In a turn of a `tool`: which call it answers. */
  readonly tool_call_id?: string;
}

/** How a conversation is rendered. */
export interface ChatOptions {
  /** End with the beginning of the assistant's turn; true by default. */
  readonly addGenerationPrompt?: boolean;
  /** Functions that the model may call, as its template shows them to it: `{type: 'function', function: {name, description, parameters}}`. */
  readonly tools?: readonly object[];
  /** Further variables of the template, such as `enable_thinking` or `documents`. */
  readonly variables?: Readonly<Record<string, unknown>>;
}

/** The variables of a chat template, as JSON text. */
export function chatVariables(messages: readonly ChatMessage[], options: ChatOptions = {}): string {
  const { addGenerationPrompt = true, tools, variables } = options;
  return JSON.stringify({
    ...variables,
    messages,
    ...(tools !== undefined && tools.length > 0 && { tools }),
    add_generation_prompt: addGenerationPrompt,
  });
}
