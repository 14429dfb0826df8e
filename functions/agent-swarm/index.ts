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

/** The input that the schema in pie.json accepts. */
interface Input {
  readonly prompt: string;
  readonly agents?: number;
  /** Number of messages of all agents together. */
  readonly messages?: number;
  /** Tokens of one message. */
  readonly maxTokens?: number;
  readonly model?: string;
  /** Set for an agent only: its index (`agent`) and the topic that all agents share (`board`). */
  readonly agent?: number;
  readonly board?: string;
}

/** One agent's message to all others. It carries token ids, because the listeners' tokenizer could split the text differently. */
interface Turn {
  readonly turn: number;
  readonly text: string;
  readonly tokens: readonly number[];
}

/**
 * Several inferlets tell one story in turns. All of them subscribe to one topic, the board. The inferlet that the client invokes launches
 * the agents as its children and passes their messages on to the client. A child, whose input has the field `agent`, is one agent.
 */
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
  // The platform keeps no messages for later subscribers, so the first agent may begin only when all agents have subscribed.
  await Promise.all(children.map((child) => child.receive()));
  await children[0]?.send('begin');
  const listen = async () => {
    const story: { sender: string; said: Turn }[] = [];
    while (story.length < messages) {
      const received = await next(talk);
      story.push(received);
      await sendJson({ agent: received.said.turn % agents, text: received.said.text });
    }
    return story;
  };
  // Wait for the results, too: the result of a failed child rejects, while `listen` alone would wait for that child's turn without end.
  const [story, heard] = await Promise.all([listen(), Promise.all(children.map((child) => child.result()))]);
  const speakers = new Set(story.map(({ sender }) => sender)).size;
  return { text: story.map(({ said }) => said.text).join(''), messages: story.length, agents: speakers, heard };
});

/** One agent: listens and takes its turns. @returns the number of messages that it heard from other agents */
async function agent(
  talk: Subscription,
  input: Required<Omit<Input, 'model'>> & Pick<Input, 'model'>,
): Promise<number> {
  const { prompt, agent: ownIndex, agents, messages, maxTokens, board, model } = input;
  using ctx = new Context({ model });
  ctx.fill(prompt, { field: 'prompt' });
  await send('ready');
  let heard = 0;
  for (let turn = 0; turn < messages; turn++) {
    if (turn % agents === ownIndex) {
      const { text, tokens } = await ctx.generate({ maxTokens, ignoreEos: true }).collect();
      // The parent sends 'begin' when all agents have subscribed. The first agent waits for it only now, with its message already written.
      if (turn === 0) await session.receive();
      await broadcast(board, JSON.stringify({ turn, text, tokens } satisfies Turn));
      // The topic delivers an agent's own messages to it too.
      await next(talk);
    } else {
      ctx.fill((await next(talk)).said.tokens);
      heard++;
    }
  }
  return heard;
}

/** The next message on the board. */
async function next(talk: Subscription): Promise<{ sender: string; said: Turn }> {
  const { sender, message } = await talk.next();
  return { sender, said: JSON.parse(String(message)) };
}
