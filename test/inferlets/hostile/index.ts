/** Misbehaves as its input says; see test/e2e/hostile.test.ts. */
import { allocateEmbeds } from 'pie:inferlet/allocate@0.1.0';
import { forward } from 'pie:inferlet/forward@0.1.0';
import { embedText } from 'pie:inferlet/input-text@0.1.0';
import { Queue } from 'pie:inferlet/queue@0.1.0';
import { models } from 'pie:inferlet/runtime@0.1.0';
import { send } from 'pie:inferlet/session@0.1.0';

type Misdeed = 'throw' | 'garbage' | 'spin' | 'recurse' | 'allocate' | 'flood' | 'bad-token' | 'bad-page';

const recurse = (depth: number): number => recurse(depth + 1) + 1;

/** The first error of calls on a queue, as the handler reports it. */
async function firstError(issue: (queue: Queue) => void): Promise<string> {
  const queue = new Queue(models()[0]?.name ?? '');
  issue(queue);
  return JSON.stringify(await queue.synchronize().read());
}

export async function run(input: string): Promise<string> {
  const { misdeed } = JSON.parse(input) as { misdeed: Misdeed };
  send({ tag: 'text', val: 'started' });
  switch (misdeed) {
    case 'throw':
      throw new Error('boom from the guest');
    case 'garbage':
      return 'this is no JSON';
    case 'spin':
      for (;;);
    case 'recurse':
      return String(recurse(0));
    case 'allocate': {
      const hoard: Uint8Array[] = [];
      for (;;) hoard.push(new Uint8Array(1 << 20).fill(hoard.length));
    }
    case 'flood':
      for (;;) send({ tag: 'text', val: 'x'.repeat(1 << 16) });
    case 'bad-token':
      return firstError((queue) => {
        const embeds = allocateEmbeds(queue, 1);
        embedText(queue, [4_000_000_000], [0], embeds);
      });
    case 'bad-page':
      return firstError((queue) => {
        const embeds = allocateEmbeds(queue, 1);
        embedText(queue, [1], [0], embeds);
        forward(queue, [123_456], embeds, [123_456], [], undefined);
      });
  }
}
