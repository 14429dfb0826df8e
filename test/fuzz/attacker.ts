import type { PagesMaker } from '#gpu-host/protocol/calls.ts';
import { FrameWriter } from '#gpu-host/protocol/frames.ts';
import { FRAME } from '#gpu-host/protocol/wire.ts';
import { Random } from '../harness/random.ts';
import { mutate, mutateReadably } from './mutate.ts';
import { HostilePeer, type Observations } from './peer.ts';
import { HostileSession } from './session.ts';

/** The frames of all attackers together. */
export interface Budget {
  /** Number of frames that the attackers may still send. */
  left: number;
  /** Number of sent frames by mutation. */
  readonly sent: Map<string, number>;
}

export interface Target {
  readonly address: string;
  /** For each model, the fingerprint and the sizes of its pages. */
  readonly models: readonly PagesMaker[];
  /** Number of encoders. */
  readonly encoders: number;
  readonly vocabularySize: number;
}

/** Maximum frames that a connection sends before it waits for the host. */
const MAX_BURST = 12;
/** Maximum bursts of one connection. */
const MAX_BURSTS = 16;
/** Number of random generators for each attacker. It exceeds the number of its connections, so that no two connections share a generator. */
const GENERATORS_AN_ATTACKER = 1_000_003;

/** Attacks with one connection after another until the budget is spent; `seed` and `index` determine what each connection sends. */
export async function attack(
  target: Target,
  seed: number,
  index: number,
  budget: Budget,
  observations: Observations,
): Promise<void> {
  for (let connection = 0; budget.left > 0; connection++) {
    const random = Random.of(seed, index * GENERATORS_AN_ATTACKER + connection);
    const serves = { models: target.models.length, encoders: target.encoders };
    const peer = new HostilePeer(target.address, serves, observations);
    try {
      await converse(peer, new HostileSession(random, target.models, target.vocabularySize), random, budget);
    } catch (error) {
      throw new Error(`connection ${connection}: ${error instanceof Error ? error.message : error}`, { cause: error });
    }
  }
}

/** Runs one connection, from its hello to its end. */
async function converse(peer: HostilePeer, session: HostileSession, random: Random, budget: Budget): Promise<void> {
  // With a low value, an unreadable frame soon ends the connection; a high value lets the connection get further.
  const spoiltOneIn = random.pick([1, 3, 8, 40]);
  let frames = greeting(random);
  for (let bursts = 1 + random.below(MAX_BURSTS); bursts > 0 && budget.left > 0 && !peer.closed; bursts--) {
    frames.push(...burst(session, random, spoiltOneIn));
    const readCount = await peer.send(
      frames.map(({ bytes }) => bytes),
      random,
    );
    for (const { name } of frames.slice(0, readCount)) spend(budget, name);
    frames = [];
  }
  await peer.cut();
}

function spend(budget: Budget, name: string): void {
  if (name === 'hello') return;
  budget.left--;
  budget.sent.set(name, (budget.sent.get(name) ?? 0) + 1);
}

interface NamedFrame {
  readonly bytes: Uint8Array;
  /** Name of the mutation. */
  readonly name: string;
}

/** Makes frames of absurd calls. One in `spoiltOneIn` has spoilt bytes; one in three of the others is mutated and still readable. */
function burst(session: HostileSession, random: Random, spoiltOneIn: number): NamedFrame[] {
  const frames: NamedFrame[] = [];
  for (let remaining = 1 + random.below(MAX_BURST); remaining > 0; remaining--) {
    const writer = new FrameWriter();
    session.write(writer);
    const frame = writer.take();
    if (frame.length === 0) continue;
    if (random.once(spoiltOneIn)) frames.push(mutate(frame, random));
    else frames.push(random.once(3) ? mutateReadably(frame, random) : { bytes: frame, name: 'hostile values' });
  }
  return frames;
}

/** Makes one hello; sometimes none, two, or a spoilt one. */
function greeting(random: Random): NamedFrame[] {
  const writer = new FrameWriter();
  writer.begin(FRAME.hello);
  writer.putText('{"processId":1,"versions":{"oldest":1,"newest":1}}');
  writer.end();
  const bytes = writer.take();
  const hello = { bytes, name: 'hello' };
  if (!random.once(24)) return [hello];
  switch (random.below(3)) {
    case 0:
      return [];
    case 1:
      return [hello, { bytes, name: 'a second hello' }];
    default:
      return [{ bytes: mutate(bytes, random).bytes, name: 'a spoilt hello' }];
  }
}
