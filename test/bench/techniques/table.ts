import type { Peer } from '../agents/peers.ts';
import type { TextTokens } from '../agents/tokens.ts';
import type { World } from '../agents/world.ts';
import {
  agent,
  beamSearch,
  ClientLoop,
  type Division,
  GRAPH_BRANCHES,
  GRAPH_JUDGE,
  GRAPH_SCORE,
  graphOfThought,
  partsOf,
  recursionOfThought,
  skeletonOfThought,
  TREE_BREADTH,
  TREE_JUDGE,
  treeOfThought,
} from './loops.ts';

export const MODEL = 'stories15m';

/** The systems on which programs and baselines run: the platform, and node-llama-cpp. */
export interface Systems {
  readonly world: World;
  readonly peer: Peer;
}

/** A technique of Pie's Table 2 as a function of `functions/`, and its baseline: the same work without the function. */
export interface Technique {
  readonly name: string;
  readonly baseline: string;
  /** Input of the function. Each program has a number of its own, so that no cache contains its prompt. */
  readonly input: (number: number, systems: Systems) => object;
  /** Counts the tokens of the output. Set where the platform's count differs, because it omits forced tokens and those of child invocations. */
  readonly count?: (output: Readonly<Record<string, unknown>>, tokens: TextTokens) => number;
  /** The baseline of one program; returns the number of tokens that it generated. */
  readonly run: (number: number, systems: Systems) => Promise<number>;
}

type Work = (loop: ClientLoop, number: number, systems: Systems) => Promise<unknown>;

const TOKENS = 32;
const REPLY = 'They ran to the big tree and sat down';

const promptOf = (number: number): string =>
  `Story ${10_000 + number}. Once upon a time, a girl named Lily and her dog Max lived by the river.`;

/** The technique as a loop of its client over node-llama-cpp; `extraFields` are added to each request. */
function onPeer(work: Work, extraFields: object = {}): Pick<Technique, 'baseline' | 'run'> {
  return {
    baseline: 'node-llama-cpp',
    run: async (number, systems) => {
      const { world, peer } = systems;
      const loop = new ClientLoop(world.tokensOf(MODEL), async (prompt, tokens) => {
        const body = { prompt, max_tokens: tokens, ...extraFields };
        return (await world.post<{ tokens: readonly number[] }>(world.peer(peer, 0), body)).tokens;
      });
      await work(loop, number, systems);
      return loop.generated;
    },
  };
}

/** A plain completion on the platform: the baseline of techniques that neither node-llama-cpp nor the API offers. */
const plain = (tokens: number): Pick<Technique, 'baseline' | 'run'> => ({
  baseline: 'plain completion',
  run: async (number, { world }) => {
    const prompt = world.tokensOf(MODEL).begin(promptOf(number));
    return (await world.complete(0, MODEL, prompt, tokens)).tokens.length;
  },
});

const complete =
  (text: (number: number) => string, tokens: number): Work =>
  (loop, number) =>
    loop.write(loop.tokens.begin(text(number)), tokens);

const PREFIX = Array.from({ length: 16 }, (_, i) => `The ${['red', 'blue', 'old'][i % 3]} bird saw a tree.`).join(' ');
const questionOf = (number: number): string => ` Bird ${10_000 + number} said:`;

const MODULES = {
  dog: ' A brown dog named Max lived in the park, and he loved to run after the birds.',
  girl: ' A girl named Lily came to the park every day with her mother and a red ball.',
  boat: ' There was a small boat on the lake, and an old man sold ice cream beside it.',
  tree: ' A very tall tree stood in the middle, and a family of owls lived at its top.',
};
const SYSTEM = 'Once upon a time, there was a big park.';
/** Two different modules, chosen by the number: the second comes one to three places after the first. */
function modulesOf(number: number): string[] {
  const names = Object.keys(MODULES);
  const first = number % names.length;
  const second = (first + 1 + (number % 3)) % names.length;
  return names.filter((_, i) => i === first || i === second);
}

const THOUGHTS = Array.from({ length: 9 }, (_, i) => `${REPLY} ${'very '.repeat(i % 3)}slowly`);
const TREE_REPLIES = [
  ...[...THOUGHTS.slice(0, TREE_BREADTH), 'sure', 'sure', 'likely'],
  ...[...THOUGHTS.slice(TREE_BREADTH), 'sure', 'likely', 'likely', 'likely', 'likely', 'sure'],
  REPLY,
];
const TREE_KEEP = 2;

/** Divides a problem into two parts, and each part again, through this many levels. */
function division(problem: string, levels: number): Division {
  const parts = levels === 0 ? [] : ['one', 'two'].map((part) => division(`${problem} ${part}`, levels - 1));
  return { problem, parts, answer: REPLY };
}
const flatten = (part: Division): Division[] => [part, ...part.parts.flatMap(flatten)];
const RULES = 'Tell a story by its parts.';
const DEPTH = 2;
const storyOf = (number: number): Division => division(`Story ${10_000 + number}`, DEPTH);

const TASK = 'Write one sentence about everything that is named.';
const PARTS = ['a dog', 'a bird'];
/** One for each part, the merge and the improvement. */
const operations = PARTS.length + 2;

const POINTS = ['The big tree', 'The old boat', 'The red ball'];
const MORE = POINTS.map((point) => `${point} was the best. ${REPLY}`);

const GRAMMAR = [
  'root ::= " the " thing ", the " thing ", the " thing ", the " thing " and the " thing "."',
  'thing ::= colour " " animal',
  'colour ::= "red" | "blue" | "brown" | "green"',
  'animal ::= "cat" | "dog" | "bird" | "horse"',
].join('\n');

const INVALID = ' He was a very big';
const VALID = ' Tom was happy.';
const ATTEMPTS = [INVALID, INVALID, VALID];

const repeatedOf = (number: number): string => `${number} ${'The red bird sat on the green tree and sang. '.repeat(3)}`;
const BEAMS = 4;
const BEAM_TOKENS = 12;

const TOOL = { name: 'look', parameters: { type: 'object', properties: { step: { type: 'integer' } } } };
const TOOL_MS = 20;
const REACT_TURNS = [0, 1].map((step) => ` I look at it.\nAction: look(step=${step})`);
const REACT_PROMPT = `Tools:\n- look(step?: integer)\nWrite "Thought:" and "Action:" with one call, read its "Observation:", and at last write "Answer:".`;
const ANSWER = ' I know it now.\nAnswer: It is 13';
const CODE_VALUES = [12, 13];
const CODE_TURNS = CODE_VALUES.map((value) => ` I try.\n\`\`\`js\nconsole.log(${value})\n\`\`\``);
const CODE_PROMPT = `Solve the task. Act by writing one \`\`\`js block; it runs, and you see what it prints with console.log.
Keep values in \`state\`. Answer without code when you are done.\nFunctions:`;
const taskOf = (number: number): string => `Is it warm in ${10_000 + number}?`;

const MESSAGES = 8;
const MESSAGE_TOKENS = 8;

const windowed = { maxTokens: 2 * TOKENS, model: MODEL };
const greedy = { temperature: 0, model: MODEL };

/** All techniques of Table 2 (Gim et al., Pie, SOSP '25). */
export const TECHNIQUES: readonly Technique[] = [
  {
    name: 'text-completion',
    input: (number) => ({ prompt: promptOf(number), maxTokens: TOKENS, ...greedy }),
    ...onPeer(complete(promptOf, TOKENS)),
  },
  {
    name: 'prefix-caching',
    input: (number) => ({ name: 'bench', prefix: PREFIX, question: questionOf(number), maxTokens: 16, model: MODEL }),
    ...onPeer(complete((number) => PREFIX + questionOf(number), 16)),
  },
  {
    name: 'modular-caching',
    input: (number) => ({
      name: 'bench',
      system: SYSTEM,
      modules: MODULES,
      use: modulesOf(number),
      maxTokens: 16,
      model: MODEL,
      question: questionOf(number),
    }),
    ...onPeer(
      complete((number) => {
        const used = modulesOf(number).map((name) => MODULES[name as keyof typeof MODULES]);
        return SYSTEM + used.join('') + questionOf(number);
      }, 16),
    ),
  },
  {
    name: 'tree-of-thought',
    input: (number) => ({
      problem: promptOf(number),
      steps: 2,
      breadth: TREE_BREADTH,
      keep: TREE_KEEP,
      judge: TREE_JUDGE,
      script: TREE_REPLIES,
      model: MODEL,
    }),
    ...onPeer((loop, number) => treeOfThought(loop, promptOf(number), TREE_REPLIES, TREE_KEEP)),
  },
  {
    name: 'recursion-of-thought',
    input: (number) => ({
      rules: RULES,
      problem: storyOf(number).problem,
      depth: DEPTH,
      model: MODEL,
      script: Object.fromEntries(
        flatten(storyOf(number)).map((part) => [
          part.problem,
          part.parts.length > 0 ? [partsOf(part), REPLY] : [REPLY],
        ]),
      ),
    }),
    ...onPeer((loop, number) => recursionOfThought(loop, RULES, storyOf(number))),
  },
  {
    name: 'graph-of-thought',
    input: (number) => ({
      task: `${number} ${TASK}`,
      parts: PARTS,
      branches: GRAPH_BRANCHES,
      judge: GRAPH_JUDGE,
      model: MODEL,
      script: Array.from({ length: operations * GRAPH_BRANCHES }, () => [REPLY, GRAPH_SCORE]).flat(),
    }),
    ...onPeer((loop, number) => graphOfThought(loop, `${number} ${TASK}`, PARTS, REPLY)),
  },
  {
    name: 'skeleton-of-thought',
    input: (number) => ({
      question: promptOf(number),
      points: POINTS.length,
      script: [...POINTS, ...MORE],
      model: MODEL,
    }),
    ...onPeer((loop, number) => skeletonOfThought(loop, promptOf(number), POINTS, MORE)),
  },
  {
    name: 'ebnf-decoding',
    input: (number) => ({ prompt: promptOf(number), grammar: GRAMMAR, ...greedy }),
    count: ({ tokens }) => (tokens as readonly number[]).length,
    ...onPeer(complete(promptOf, 128), { grammar: GRAMMAR }),
  },
  {
    name: 'beam-search',
    input: (number) => ({ prompt: promptOf(number), beams: BEAMS, maxTokens: BEAM_TOKENS, model: MODEL }),
    baseline: 'client loop over /v1/completions',
    run: (number, { world }) =>
      beamSearch(promptOf(number), BEAMS, BEAM_TOKENS, async (prompt, logprobs) => {
        const body = { model: MODEL, prompt, max_tokens: 1, logprobs, temperature: 0, ignore_eos: true };
        const url = `${world.gateway(0)}/v1/completions`;
        const { choices } = await world.post<{ choices: readonly Choice[] }>(url, body);
        return choices.map((choice) => choice.logprobs.top_logprobs[0] ?? {});
      }),
  },
  {
    name: 'watermarking',
    input: (number) => ({ prompt: promptOf(number), maxTokens: TOKENS, seed: number, model: MODEL }),
    ...plain(TOKENS),
  },
  {
    name: 'output-validation',
    input: (number) => ({ prompt: promptOf(number), pattern: '^ Tom', script: ATTEMPTS, model: MODEL }),
    ...onPeer(async (loop, number) => {
      for (const attempt of ATTEMPTS) await loop.say(loop.tokens.begin(promptOf(number)), '', attempt);
    }),
  },
  {
    name: 'speculative-decoding',
    input: (number) => ({ prompt: repeatedOf(number), maxTokens: TOKENS, ...greedy }),
    ...onPeer(complete(repeatedOf, TOKENS), { lookup: true }),
  },
  {
    name: 'jacobi-decoding',
    input: (number) => ({ prompt: promptOf(number), maxTokens: TOKENS, ...greedy }),
    ...plain(TOKENS),
  },
  {
    name: 'attention-sink',
    input: (number) => ({ text: promptOf(number), window: TOKENS, ...windowed }),
    ...plain(windowed.maxTokens),
  },
  {
    name: 'windowed-attention',
    input: (number) => ({ text: promptOf(number), window: TOKENS, ...windowed }),
    ...plain(windowed.maxTokens),
  },
  {
    name: 'hierarchical-attention',
    input: (number) => ({ text: promptOf(number), block: 16, landmarks: 4, ...windowed }),
    ...plain(windowed.maxTokens),
  },
  {
    name: 'agent-react',
    input: (number, { world }) => ({
      question: taskOf(number),
      tools: [{ ...TOOL, url: world.toolUrl(TOOL_MS) }],
      script: [...REACT_TURNS, ANSWER],
      model: MODEL,
    }),
    ...onPeer((loop, number, { world }) => {
      const prompt = `${REACT_PROMPT}\n\nQuestion: ${taskOf(number)}\nThought:`;
      const look = async (step: number) => `\nObservation: ${await world.callTool(TOOL_MS, step)}\nThought:`;
      return agent(loop, prompt, [...REACT_TURNS, ANSWER], look);
    }),
  },
  {
    name: 'agent-codeact',
    input: (number) => ({ task: taskOf(number), script: [...CODE_TURNS, ANSWER], model: MODEL }),
    ...onPeer((loop, number) => {
      const prompt = `${CODE_PROMPT}\n\nQuestion: ${taskOf(number)}\nThought:`;
      const observe = async (step: number) => `\nObservation: ${CODE_VALUES[step]}\nThought:`;
      return agent(loop, prompt, [...CODE_TURNS, ANSWER], observe);
    }),
  },
  {
    name: 'agent-swarm',
    input: (number) => ({ prompt: promptOf(number), messages: MESSAGES, maxTokens: MESSAGE_TOKENS, model: MODEL }),
    count: ({ text }, { more }) => more(String(text)).length,
    ...onPeer(async (loop, number) => {
      const contextTokens = loop.tokens.begin(promptOf(number));
      for (let i = 0; i < MESSAGES; i++) contextTokens.push(...(await loop.write(contextTokens, MESSAGE_TOKENS)));
    }),
  },
];

interface Choice {
  readonly logprobs: { readonly top_logprobs: readonly Record<string, number>[] };
}
