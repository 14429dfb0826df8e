import type { AdapterInfo, StepRequest as WireStepRequest } from '#gpu-host/protocol/calls.ts';
import { err, type Outcome, refuseName } from '#gpu-host/protocol/errors.ts';
import type { Mask, StepResult } from '#wit/generated/host.ts';
import { countStepTokens, tokensOf } from './fused.ts';
import type { Inferlet } from './inferlet.ts';
import type { DeviceQueue } from './queue.ts';

/** Implements `wit/adapter.wit`. */
export const adapter = {
  'list-adapters': (_inferlet: Inferlet, queue: DeviceQueue): Promise<Outcome<readonly AdapterInfo[]>> => {
    const offered = queue.offering('adapter');
    return offered.tag === 'err' ? Promise.resolve(offered) : offered.val.ask(queue.id, { op: 'list-adapters' });
  },

  'load-adapter': (_inferlet: Inferlet, queue: DeviceQueue, name: string): Promise<Outcome<undefined>> => {
    const refused = refuseName(name);
    if (refused) return Promise.resolve(err(refused));
    const offered = queue.offering('adapter');
    return offered.tag === 'err' ? Promise.resolve(offered) : offered.val.ask(queue.id, { op: 'load-adapter', name });
  },

  /** If the model has no adapters, the device refuses the call when its turn in the queue comes. */
  'forward-with-adapter': (
    inferlet: Inferlet,
    queue: DeviceQueue,
    name: string,
    inPages: Uint32Array,
    inEmbeds: Uint32Array,
    outPages: Uint32Array,
    outEmbeds: Uint32Array,
    mask: Mask | undefined,
  ): void => {
    const refused = refuseName(name) ?? inferlet.tokens.forward(inEmbeds.length);
    if (refused) {
      queue.fail(refused);
      return;
    }
    inferlet.hooks.steps?.forward(queue, inEmbeds.length, outEmbeds.length > 0);
    queue.device?.send(queue.id, { op: 'forward', inPages, inEmbeds, outPages, outEmbeds, mask, adapter: name });
  },

  step: (
    inferlet: Inferlet,
    queue: DeviceQueue,
    name: string,
    request: WireStepRequest,
  ): Promise<Outcome<StepResult>> => {
    const refused = refuseName(name) ?? inferlet.refuseTokens();
    if (refused) return Promise.resolve(err(refused));
    const offered = queue.offering('adapter');
    if (offered.tag === 'err') return Promise.resolve(offered);
    const step = inferlet.hooks.steps?.begin(queue, request.tokens.length, request.output.tag !== 'none');
    const call = () => offered.val.ask(queue.id, { op: 'step', request: { ...request, adapter: name } });
    return countStepTokens(inferlet, tokensOf(request), call, step);
  },
};
