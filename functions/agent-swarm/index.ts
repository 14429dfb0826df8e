import {
  broadcast,
  Context,
  defineInferlet,
  invocation,
  launch,
  type Subscription,
  send,
  sendJson,
  session,
  subscribe,
} from '@pie/inferlet';

/** What pie.json's schema lets through. */
interface Input {
  readonly prompt: string;
  readonly agents?: number;
  readonly messages?: number;
  readonly maxTokens?: number;
  readonly model?: string;
  /** Of an agent only: which one it is, and where all of them talk. */
  readonly agent?: number;
  readonly board?: string;
}

/** What one agent says to all: token ids, so that nobody has to guess how the text was cut. */
interface Turn {
  readonly turn: number;
  readonly text: string;
  readonly tokens: readonly number[];
}

/** Several inferlets tell one story in turns, over a board that all of them listen to. */
export const run = defineInferlet(async ({ agents = 4, messages = 32, maxTokens = 6, ...input }: Input) => {
  const board = input.board ?? `agent-swarm/${invocation().id}`;
  using talk = await subscribe(board);
  if (input.agent !== undefined)
    return await agent(talk, { ...input, agent: input.agent, board, agents, messages, maxTokens });
  const children = await Promise.all(
    Array.from({ length: agents }, (_, agent) =>
      launch('agent-swarm', { ...input, agents, messages, maxTokens, agent, board }),
    ),
  );
  using family = new DisposableStack();
  for (const child of children) family.use(child);
  // Nobody keeps what is said before all listen.
  await Promise.all(children.map((child) => child.receive()));
  await Promise.all(children.map((child) => child.send('begin')));
  const listen = async () => {
    const all: { sender: string; said: Turn }[] = [];
    while (all.length < messages) {
      const heard = await next(talk);
      all.push(heard);
      await sendJson({ agent: heard.said.turn % agents, text: heard.said.text });
    }
    return all;
  };
  // A child that fails ends the wait for its turn.
  const [all, heard] = await Promise.all([listen(), Promise.all(children.map((child) => child.result()))]);
  const speakers = new Set(all.map(({ sender }) => sender)).size;
  return { text: all.map(({ said }) => said.text).join(''), messages: all.length, agents: speakers, heard };
});

/** Listens, takes its turns, and answers how many messages of others it heard. */
async function agent(
  talk: Subscription,
  input: Required<Omit<Input, 'model'>> & Pick<Input, 'model'>,
): Promise<number> {
  const { prompt, agent: mine, agents, messages, maxTokens, board, model } = input;
  using ctx = new Context({ model });
  ctx.fill(prompt);
  await send('ready');
  await session.receive();
  let heard = 0;
  for (let turn = 0; turn < messages; turn++) {
    if (turn % agents === mine) {
      const { text, tokens } = await ctx.generate({ maxTokens, ignoreEos: true }).collect();
      await broadcast(board, JSON.stringify({ turn, text, tokens } satisfies Turn));
      await next(talk);
    } else {
      ctx.fill((await next(talk)).said.tokens);
      heard++;
    }
  }
  return heard;
}

async function next(talk: Subscription): Promise<{ sender: string; said: Turn }> {
  const { sender, message } = await talk.next();
  return { sender, said: JSON.parse(String(message)) };
}
