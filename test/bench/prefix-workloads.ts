import { createHash } from 'node:crypto';
import { gaussian } from '#gpu-host/models/testing/random-model.ts';

/** Vocabulary of the model; the first tokens are special. */
export const VOCABULARY_SIZE = 259;
const FIRST_TOKEN = 3;

/** A part of a prompt. */
export interface Part {
  /** Names the part within its workload. */
  readonly key: string;
  readonly tokens: readonly number[];
  /** True when a program that saves its own prefixes saves the prompt up to and including this part. */
  readonly isSaved?: boolean;
}

/** Sends one request and returns its answer's tokens. A program that saves its own prefixes saves prompt and answer under the name `keep`. */
export type Ask = (parts: readonly Part[], keep?: string) => Promise<readonly number[]>;

/** Makes a part of `length` tokens. They depend on the key and the round only, so that concurrent requests get the same prompts in any order. */
export type MakePart = (key: string, length: number, isSaved?: boolean) => Part;

export interface Workload {
  readonly name: string;
  /** Sends all requests. */
  run(ask: Ask, part: MakePart): Promise<void>;
}

/** Tokens of an answer. */
export const ANSWER_TOKENS = 16;

const times = <T>(count: number, make: (index: number) => T): T[] => Array.from({ length: count }, (_, i) => make(i));

/** The workloads of section 6.2 of the SGLang paper (Zheng et al., 2024), short enough for a CPU to compute each in seconds. */
export const WORKLOADS: readonly Workload[] = [
  {
    name: 'few-shot: 8 questions after 640 tokens of examples, at once',
    async run(ask, part) {
      const examples = part('examples', 640, true);
      await Promise.all(times(8, (i) => ask([examples, part(`question-${i}`, 24)])));
    },
  },
  {
    name: 'reasoning: a tree of 2 thoughts a node, 3 levels below 256 tokens',
    async run(ask, part) {
      const visit = async (path: readonly Part[], depth: number): Promise<void> => {
        if (depth === 3) return;
        await Promise.all(
          times(2, async (child) => {
            const key = `${path.at(-1)?.key}-${child}`;
            const thought = part(`${key}-thought`, 8);
            const tokens = [...thought.tokens, ...(await ask([...path, thought], depth < 2 ? key : undefined))];
            await visit([...path, { key, tokens, isSaved: true }], depth + 1);
          }),
        );
      };
      await visit([part('root', 256, true)], 0);
    },
  },
  {
    name: 'content generation: 3 texts, each a skeleton after 384 tokens and then its 4 points at once',
    async run(ask, part) {
      const rules = part('rules', 256, true);
      const write = async (text: number) => {
        const task = part(`task-${text}`, 128);
        const key = `skeleton-${text}`;
        const skeleton = { key, tokens: [...task.tokens, ...(await ask([rules, task], key))], isSaved: true };
        await Promise.all(times(4, (point) => ask([rules, skeleton, part(`point-${text}-${point}`, 24)])));
      };
      await Promise.all(times(3, write));
    },
  },
  {
    name: 'multi-turn chat: 4 chats of 4 turns, 64 tokens a turn',
    async run(ask, part) {
      const system = part('system', 96, true);
      const chat = async (id: number) => {
        const history: Part[] = [system];
        for (let turn = 0; turn < 4; turn++) {
          const key = `chat-${id}-${turn}`;
          const message = part(`${key}-message`, 64);
          const answer = await ask([...history, message], turn < 3 ? key : undefined);
          history.push({ key, tokens: [...message.tokens, ...answer], isSaved: true });
        }
      };
      await Promise.all(times(4, chat));
    },
  },
  {
    name: 'agents: 4 agents of 4 steps, 192 tokens for all and 128 for each',
    async run(ask, part) {
      const rules = part('rules', 192, true);
      const agent = async (id: number) => {
        const profile = part(`agent-${id}`, 128, true);
        for (let step = 0; step < 4; step++) await ask([rules, profile, part(`agent-${id}-${step}`, 48)]);
      };
      await Promise.all(times(4, agent));
    },
  },
  {
    name: 'long document: 6 questions about 1,536 tokens, one after another',
    async run(ask, part) {
      const document = part('document', 1536, true);
      for (let question = 0; question < 6; question++) await ask([document, part(`question-${question}`, 32)]);
    },
  },
];

/** The workloads of a quick run. */
export const QUICK_WORKLOADS = WORKLOADS.filter(({ name }) => name.startsWith('multi-turn chat'));

/** Makes the parts of a workload in one round. No two rounds have equal parts. */
export const partsOf =
  (round: string): MakePart =>
  (key, length, isSaved = false) => {
    const random = gaussian(createHash('sha256').update(`${round}/${key}`).digest().readInt32LE());
    const token = () => FIRST_TOKEN + (Math.floor(Math.abs(random()) * 1e6) % (VOCABULARY_SIZE - FIRST_TOKEN));
    return { key, tokens: times(length, token), isSaved };
  };
