import { CODE, observed, TURN_TOKENS } from './task.ts';
import type { TextTokens } from './tokens.ts';

/** Continues a prompt of token ids greedily by `maxTokens` tokens, even past an end-of-text token. */
export type Complete = (prompt: readonly number[], maxTokens: number) => Promise<Completion>;

export interface Completion {
  readonly tokens: readonly number[];
  /** Absent when the server answers with ids only. */
  readonly text?: string;
}

/** Settings of a client loop. */
export interface LoopTask {
  readonly question: string;
  /** Tool calls of an agent; messages of a swarm. */
  readonly ios: number;
  readonly complete: Complete;
  readonly tokens: TextTokens;
  readonly callTool: (step: number) => Promise<string>;
}

/** Outcome of an agent. */
export interface Conversation {
  /** All tokens, those of the question included. The function `agent-swarm` does not return them. */
  readonly tokens?: readonly number[];
  /** Text of the generated tokens. Only swarms have one, and only when the server answers with text. */
  readonly text?: string;
}

/** An agent that its client drives: the model writes, the client calls the tool, and sends everything so far again. */
export async function reactLoop({ question, ios, complete, tokens, callTool }: LoopTask): Promise<Conversation> {
  const contextTokens = tokens.begin(question);
  for (let step = 0; step < ios; step++) {
    contextTokens.push(...(await complete(contextTokens, TURN_TOKENS)).tokens);
    contextTokens.push(...tokens.more(observed(await callTool(step))));
  }
  contextTokens.push(...(await complete(contextTokens, TURN_TOKENS)).tokens);
  return { tokens: contextTokens };
}

type CodeBlock = (look: (step: number) => Promise<string>, state: object, console: object) => Promise<void>;
const AsyncFunction = Object.getPrototypeOf(async () => undefined).constructor as new (...text: string[]) => CodeBlock;

/** A ReACT loop whose tool calls are made by code. The client runs the code in its own process, which favours this baseline. */
export async function codeactLoop({ question, ios, complete, tokens, callTool }: LoopTask): Promise<Conversation> {
  const block = new AsyncFunction('look', 'state', 'console', CODE);
  const state = {};
  const contextTokens = tokens.begin(question);
  for (let step = 0; step < ios; step++) {
    contextTokens.push(...(await complete(contextTokens, TURN_TOKENS)).tokens);
    const lines: string[] = [];
    await block(callTool, state, { log: (line: string) => lines.push(line) });
    contextTokens.push(...tokens.more(`\n${lines.join('\n')}`));
  }
  contextTokens.push(...(await complete(contextTokens, TURN_TOKENS)).tokens);
  return { tokens: contextTokens };
}

/** A swarm whose messages its client passes on: each turn is a request with the whole story. */
export async function swarmLoop({ question, ios, complete, tokens }: LoopTask): Promise<Conversation> {
  const contextTokens = tokens.begin(question);
  const texts: (string | undefined)[] = [];
  for (let turn = 0; turn < ios; turn++) {
    const completion = await complete(contextTokens, TURN_TOKENS);
    contextTokens.push(...completion.tokens);
    texts.push(completion.text);
  }
  return { tokens: contextTokens, ...(!texts.includes(undefined) && { text: texts.join('') }) };
}
