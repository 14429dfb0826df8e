import type { TextTokens } from '../agents/tokens.ts';

/** Continues a prompt of token ids by a number of tokens. */
export type Write = (prompt: readonly number[], tokens: number) => Promise<readonly number[]>;

/** A technique as a loop of its client. The client keeps each text and sends the whole of it with every request. */
export class ClientLoop {
  /** Tokens generated so far. */
  generated = 0;
  readonly tokens: TextTokens;
  readonly #write: Write;

  constructor(tokens: TextTokens, write: Write) {
    this.tokens = tokens;
    this.#write = write;
  }

  /** Appends a label and a reply to a context. The model generates the reply, with as many tokens as `reply` has. */
  async say(context: readonly number[], label: string, reply: string): Promise<number[]> {
    const prompt = [...context, ...this.tokens.more(label)];
    return [...prompt, ...(await this.write(prompt, this.tokens.more(reply).length))];
  }

  async write(prompt: readonly number[], tokens: number): Promise<readonly number[]> {
    const written = await this.#write(prompt, tokens);
    this.generated += written.length;
    return written;
  }
}

/** Breadth-first search over thoughts. `replies` has the thoughts and then the verdicts of each step, and at last the answer. */
export async function treeOfThought(loop: ClientLoop, problem: string, replies: readonly string[], keep: number) {
  const remainingReplies = [...replies];
  const next = () => remainingReplies.shift() ?? '';
  let states = [loop.tokens.begin(`${problem}\n`)];
  for (const thoughts of [TREE_BREADTH, keep * TREE_BREADTH]) {
    const pairs = Array.from(
      { length: thoughts },
      (_, i) => [states[Math.floor(i / TREE_BREADTH)] ?? [], next()] as const,
    );
    const newStates = await Promise.all(pairs.map(([state, reply]) => loop.say(state, 'Step:', ` ${reply}\n`)));
    await Promise.all(newStates.map((state) => loop.say(state, TREE_JUDGE, ` ${next()}\n`)));
    states = newStates.slice(0, keep);
  }
  await loop.say(states[0] ?? [], 'Answer:', ` ${next()}\n`);
}

export const TREE_BREADTH = 3;
export const TREE_JUDGE = 'Can this be solved (sure, likely, impossible)?';

/** A problem, its parts, and its answer. */
export interface Division {
  readonly problem: string;
  readonly parts: readonly Division[];
  readonly answer: string;
}

/** Solves the parts of a problem at once and puts their answers together. The context of each part begins with the rules. */
export async function recursionOfThought(loop: ClientLoop, rules: string, whole: Division): Promise<void> {
  const { problem, parts, answer } = whole;
  let context = [...loop.tokens.begin(`${rules}\n`), ...loop.tokens.more(`Problem: ${problem}\n`)];
  if (parts.length > 0) {
    context = await loop.say(context, 'Parts:', ` ${partsOf(whole)}\n`);
    await Promise.all(parts.map((part) => recursionOfThought(loop, rules, part)));
    context.push(...loop.tokens.more(`Answers: ${parts.map((part) => part.answer).join('; ')}\n`));
  }
  await loop.say(context, 'Answer:', ` ${answer}\n`);
}

export const partsOf = ({ parts }: Division): string => parts.map(({ problem }) => problem).join('; ');

/** Writes thoughts on each part, merges them, and improves the result. Every operation writes `GRAPH_BRANCHES` thoughts and scores each. */
export async function graphOfThought(loop: ClientLoop, task: string, parts: readonly string[], thought: string) {
  const operate = async (kind: string, text: string) => {
    const context = [...loop.tokens.begin(`${task}\n`), ...loop.tokens.more(`${kind}: ${text}\nResult:`)];
    const think = async () => {
      const withThought = await loop.say(context, '', ` ${thought}\n`);
      return loop.say(withThought, `\n${GRAPH_JUDGE}`, ` ${GRAPH_SCORE}\n`);
    };
    await Promise.all(Array.from({ length: GRAPH_BRANCHES }, think));
  };
  await Promise.all(parts.map((part) => operate('Part', part)));
  await operate('Merge', parts.map(() => thought).join(' | '));
  await operate('Improve', thought);
}

export const GRAPH_BRANCHES = 3;
export const GRAPH_JUDGE = 'Score from 0 to 10:';
export const GRAPH_SCORE = '7';

/** Writes the titles of the points one after the other, then all points at once. */
export async function skeletonOfThought(
  loop: ClientLoop,
  question: string,
  points: readonly string[],
  expansions: readonly string[],
): Promise<void> {
  let skeleton = loop.tokens.begin(`${question}\n`);
  for (const [i, point] of points.entries()) skeleton = await loop.say(skeleton, `${i + 1}.`, ` ${point}\n`);
  await Promise.all(points.map((point, i) => loop.say(skeleton, `${i + 1}. ${point}:`, ` ${expansions[i]}\n`)));
}

/** An agent whose client makes the calls: turns of the model, with the tool's answers between them. */
export async function agent(
  loop: ClientLoop,
  prompt: string,
  turns: readonly string[],
  observe: (step: number) => Promise<string>,
): Promise<void> {
  let context = await loop.say(loop.tokens.begin(prompt), '', turns[0] ?? '');
  for (const [step, turn] of turns.slice(1).entries()) context = await loop.say(context, await observe(step), turn);
}

/** For each prompt, the log probabilities of the `count` most probable next tokens, by their texts. */
export type Alternatives = (prompts: readonly string[], count: number) => Promise<readonly Record<string, number>[]>;

/** Beam search over an API that returns the most probable tokens. Each step sends all beams in one request. Returns the count of computed tokens. */
export async function beamSearch(prompt: string, beams: number, tokens: number, alternatives: Alternatives) {
  let liveBeams = [{ text: '', logProbability: 0 }];
  let computed = 0;
  for (let i = 0; i < tokens; i++) {
    const next = await alternatives(
      liveBeams.map(({ text }) => prompt + text),
      beams,
    );
    computed += liveBeams.length;
    liveBeams = liveBeams
      .flatMap(({ text, logProbability }, k) =>
        Object.entries(next[k] ?? {}).map(([token, log]) => ({
          text: text + token,
          logProbability: logProbability + log,
        })),
      )
      .sort((a, b) => b.logProbability - a.logProbability)
      .slice(0, beams);
  }
  return computed;
}
