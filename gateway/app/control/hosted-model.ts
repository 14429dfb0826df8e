import type { GpuHostState, HostedModel } from './operations.ts';

/** `cuda, bf16`, with what keys and values are where that is another thing. */
export function backendText({ backend, precision, kv }: Pick<HostedModel, 'backend' | 'precision' | 'kv'>): string {
  return [backend, precision, ...(kv === null ? [] : [`KV ${kv}`])].join(', ');
}

/** `0: NVIDIA H200`, or `CPU`. */
export function deviceText({ device, deviceIndex }: Pick<HostedModel, 'device' | 'deviceIndex'>): string {
  return deviceIndex === null ? device : `${deviceIndex}: ${device}`;
}

/** `there` or `away`; of a drained one whether something runs there still. */
export function hostState({ connected, drained, running }: GpuHostState): string {
  if (!drained) return connected ? 'there' : 'away';
  if (running > 0) return 'draining';
  return connected ? 'drained' : 'drained, away';
}
