/** Cases of `adapter`, on a model named `tiny` with an adapter named `other`; the function's default model has no adapter. */
import { adapter, forward, fused, inputText, outputText, type Queue, settle } from '@pie/inferlet/raw';
import { type Cases, embedsOf, issued, NO_ADDRESS, NO_MODEL, near, newQueue, pagesOf, upTo } from './case.ts';
import { asked } from './compute.ts';

const MODEL = 'tiny';
const ADAPTER = 'other';
const TOKENS = [1, 5, 9, 44, 3];
const TOP = 4;

const request = (pages: readonly number[]): Parameters<typeof fused.step>[1] => ({
  tokens: TOKENS,
  positions: upTo(TOKENS.length),
  inPages: pages,
  outPages: pages,
  rows: 1,
  output: { tag: 'distributions', val: TOP },
});

/** Embeds that hold the tokens, and one embed for a state. */
function embedded(queue: Queue): { readonly inputs: number[]; readonly state: number } {
  const inputs = embedsOf(queue, TOKENS.length);
  const [state = 0] = embedsOf(queue, 1);
  inputText.embedText(queue, TOKENS, upTo(TOKENS.length), inputs);
  return { inputs, state };
}

/** Log-probabilities of the token after `TOKENS`, from a fused step with the adapter `name`, or without an adapter. */
async function stepped(queue: Queue, name?: string): Promise<readonly number[]> {
  const pages = pagesOf(queue, 1);
  const call = name === undefined ? fused.step(queue, request(pages)) : adapter.step(queue, name, request(pages));
  return (await settle(call)).distributions[0]?.logProbabilities ?? [];
}

/** Log-probabilities of the token after `TOKENS`, from separate calls. Two calls of `forward` share one page: two tokens, then the others. */
async function forwarded(queue: Queue, name: string): Promise<readonly number[]> {
  const pages = pagesOf(queue, 1);
  const { inputs, state } = embedded(queue);
  adapter.forwardWithAdapter(queue, name, [], inputs.slice(0, 2), pages, [], undefined);
  adapter.forwardWithAdapter(queue, name, pages, inputs.slice(2), pages, [state], undefined);
  return (await settle(outputText.nextDistribution(queue, state, TOP))).logProbabilities;
}

const forwarding = (name: string, inPages: readonly number[], model = MODEL) =>
  issued((queue) => {
    const { inputs, state } = embedded(queue);
    adapter.forwardWithAdapter(queue, name, inPages, inputs, [], [state], undefined);
  }, model);

export const adapterCases: Cases = {
  'adapter.list-adapters': {
    ok: async () => {
      const adapters = await asked((queue) => adapter.listAdapters(queue), MODEL);
      return adapters.some(({ name, rank }) => name === ADAPTER && rank > 0);
    },
    fails: {
      unsupported: () => asked((queue) => adapter.listAdapters(queue)),
      'not-found': () => asked((queue) => adapter.listAdapters(queue), NO_MODEL),
    },
  },
  'adapter.load-adapter': {
    ok: async () => {
      using queue = newQueue(MODEL);
      await settle(adapter.loadAdapter(queue, ADAPTER));
      await settle(adapter.loadAdapter(queue, ADAPTER));
      return (await settle(adapter.listAdapters(queue))).some(({ name, loaded }) => name === ADAPTER && loaded);
    },
    fails: {
      'not-found': () => asked((queue) => adapter.loadAdapter(queue, 'nobody'), MODEL),
      unsupported: () => asked((queue) => adapter.loadAdapter(queue, ADAPTER)),
    },
  },
  'adapter.forward-with-adapter': {
    ok: async () => {
      using queue = newQueue(MODEL);
      const [adapted, plain] = [await forwarded(queue, ADAPTER), await stepped(queue)];
      // A concurrent step without an adapter, on another queue, must not see the adapter's effect.
      using other = newQueue(MODEL);
      const [adaptedAgain, plainBeside] = await Promise.all([forwarded(queue, ADAPTER), stepped(other)]);
      return !near(adapted, plain, 1e-3) && near(adapted, adaptedAgain) && near(plain, plainBeside);
    },
    fails: {
      'not-found': () => forwarding('nobody', []),
      'not-owned': () => forwarding(ADAPTER, [NO_ADDRESS]),
      'invalid-argument': () =>
        issued((queue) => {
          const { inputs } = embedded(queue);
          adapter.forwardWithAdapter(queue, ADAPTER, [], inputs, [], [], { runs: [0, 3], rowLengths: [2] });
        }, MODEL),
      unsupported: () =>
        issued((queue) => {
          const inputs = embedsOf(queue, 1);
          inputText.embedText(queue, [1], [0], inputs);
          adapter.forwardWithAdapter(queue, ADAPTER, [], inputs, [], [], undefined);
          forward.forward(queue, [], inputs, [], [], undefined);
        }),
    },
  },
  'adapter.step': {
    ok: async () => {
      using queue = newQueue(MODEL);
      // The second step finds the keys that the first one cached. The last step has no adapter, so it must not find keys of the other two.
      const [adapted, adaptedAgain] = [await stepped(queue, ADAPTER), await stepped(queue, ADAPTER)];
      return (
        near(adapted, adaptedAgain) &&
        near(adapted, await forwarded(queue, ADAPTER)) &&
        !near(adapted, await stepped(queue), 1e-3)
      );
    },
    fails: {
      'not-found': () => asked((queue) => adapter.step(queue, 'nobody', request(pagesOf(queue, 1))), MODEL),
      'not-owned': () => asked((queue) => adapter.step(queue, ADAPTER, request([NO_ADDRESS])), MODEL),
      unsupported: () => asked((queue) => adapter.step(queue, ADAPTER, request(pagesOf(queue, 1)))),
    },
  },
};
