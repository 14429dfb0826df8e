import type { GpuHostState, HostedModel, MachineState } from '../control.ts';

/** `cuda, bf16`; adds the KV precision where it differs. */
export function backendText({ backend, precision, kv }: Pick<HostedModel, 'backend' | 'precision' | 'kv'>): string {
  return [backend, precision, ...(kv === null ? [] : [`KV ${kv}`])].join(', ');
}

/** `0: NVIDIA H200`, or `CPU`. */
export function deviceText({ device, deviceIndex }: Pick<HostedModel, 'device' | 'deviceIndex'>): string {
  return deviceIndex === null ? device : `${deviceIndex}: ${device}`;
}

/** `there` or `away`. A drained host is `draining` while invocations run on it, then `drained` or `drained, away`. */
export function hostState({ connected, drained, running }: GpuHostState): string {
  if (!drained) return connected ? 'there' : 'away';
  if (running > 0) return 'draining';
  return connected ? 'drained' : 'drained, away';
}

/** `there`, `stopped` (joined, and does not run) or `gone` (died). A drained machine is `drained`, `drained, stopped` or `drained, gone`. */
export function machineState({ alive, drained, startedAt }: MachineState): string {
  if (alive) return drained ? 'drained' : 'there';
  const state = startedAt === null ? 'stopped' : 'gone';
  return drained ? `drained, ${state}` : state;
}
