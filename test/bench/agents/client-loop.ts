import { CODE, observed, TURN_TOKENS } from './task.ts';
import type { TextTokens } from './tokens.ts';

/** Continues a prompt of token ids greedily by `maxTokens` tokens, whatever they are. */
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
  /** Text of the generated tokens; only of swarms, and not of a server that answers with ids only. */
  readonly text?: string;
}

/** An agent that its client drives: the model writes, the client calls the tool, and sends everything so far again. */
export async function reactLoop({ question, ios, complete, tokens, callTool }: LoopTask): Promise<Conversation> {
  const all = tokens.begin(question);
  for (let step = 0; step < ios; step++) {
    all.push(...(await complete(all, TURN_TOKENS)).tokens);
    all.push(...tokens.more(observed(await callTool(step))));
  }
  all.push(...(await complete(all, TURN_TOKENS)).tokens);
  return { tokens: all };
}

type Block = (look: (step: number) => Promise<string>, state: object, console: object) => Promise<void>;
const AsyncFunction = Object.getPrototypeOf(async () => undefined).constructor as new (...text: string[]) => Block;

/** The same with code that the client runs in its own process, which is the fastest way. */
export async function codeactLoop({ question, ios, complete, tokens, callTool }: LoopTask): Promise<Conversation> {
  const block = new AsyncFunction('look', 'state', 'console', CODE);
  const state = {};
  const all = tokens.begin(question);
  for (let step = 0; step < ios; step++) {
    all.push(...(await complete(all, TURN_TOKENS)).tokens);
    const lines: string[] = [];
    await block(callTool, state, { log: (line: string) => lines.push(line) });
    all.push(...tokens.more(`\n${lines.join('\n')}`));
  }
  all.push(...(await complete(all, TURN_TOKENS)).tokens);
  return { tokens: all };
}

/** A swarm whose messages its client passes on: each turn is a request with the whole story. */
export async function swarmLoop({ question, ios, complete, tokens }: LoopTask): Promise<Conversation> {
  const all = tokens.begin(question);
  const texts: (string | undefined)[] = [];
  for (let turn = 0; turn < ios; turn++) {
    const said = await complete(all, TURN_TOKENS);
    all.push(...said.tokens);
    texts.push(said.text);
  }
  return { tokens: all, ...(!texts.includes(undefined) && { text: texts.join('') }) };
}
