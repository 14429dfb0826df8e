import type { CodeEntry } from './code-entry.ts';

/**
 * Failed ends of invocations, besides those by a quota (`quota-codes.ts`). Only `memory-unavailable` is a refusal:
 * such an invocation is never stored.
 */
export const INVOCATION_CODES = {
  'inferlet-error': {
    status: 422,
    title: 'The function answered with an error',
    hint: "Read the message; it is the function's own. `pie logs` shows what it wrote before.",
    explanation: 'The inferlet ran and ended with an error of its own: it threw, or returned one.',
  },
  trap: {
    status: 422,
    title: 'The function crashed',
    hint: '`pie logs` shows what it wrote before the trap.',
    explanation: 'The inferlet trapped: unreachable code, an access outside its memory, a stack overflow.',
  },
  'invalid-result': {
    status: 422,
    title: 'The function returned something other than JSON',
    hint: 'Return a string that holds one JSON value (`JSON.stringify(…)`).',
    explanation: 'The text that the inferlet returned could not be read as its result.',
  },
  'cpu-limit': {
    status: 422,
    title: 'The function used up its CPU time',
    hint: 'Raise `limits.cpuMs` in the manifest, or compute less between calls.',
    explanation:
      'The inferlet computed for longer than its manifest, or the platform, allows. Waiting for the model does not count.',
  },
  'memory-unavailable': {
    status: 422,
    title: 'The function may take more memory than the platform has',
    hint: 'Lower `limits.memoryMb` in the manifest, or have the operator raise `[runtime] total_memory_mb` in pie.toml.',
    explanation:
      'An invocation starts when its expected memory fits beside that of all others. This one could never start, so nothing was stored.',
  },
  'memory-limit': {
    status: 422,
    title: 'The function used up its memory',
    hint: 'Raise `limits.memoryMb` in the manifest, or hold less.',
    explanation: 'The inferlet asked for more memory than its manifest, or the platform, allows.',
  },
  'output-limit': {
    status: 422,
    title: 'The function wrote too much',
    hint: 'Send fewer or smaller messages and log lines.',
    explanation: "The invocation's events exceeded the limit on the output of one invocation.",
  },
  'deadline-exceeded': {
    status: 504,
    title: 'The deadline passed',
    hint: 'Raise `limits.wallMs` in the manifest, or ask for less at once.',
    explanation: 'The invocation did not end within its wall time, or before the deadline that `Cancel-After` has set.',
  },
  cancelled: {
    status: 409,
    title: 'The invocation was cancelled',
    hint: 'Invoke the function again if the cancellation was a mistake.',
    explanation:
      'A client cancelled the invocation, or a client that sent `Prefer: cancel-on-disconnect` left before the invocation ended.',
  },
  superseded: {
    status: 409,
    title: 'A later invocation took its place',
    hint: 'Follow the invocation that `successor` names.',
    explanation:
      'Before the delay of its `Debounce-Key` had passed, a later request for the function came with the same key. The successor has the later input; this invocation never ran.',
  },
  terminated: {
    status: 503,
    title: 'The invocation was terminated to free memory',
    hint: 'Try again; ask for fewer pages, or declare the function `restartable`.',
    explanation: 'The KV memory was exhausted, and the most recently started invocations give way first.',
  },
  unavailable: {
    status: 503,
    title: 'Something that the function needs was unavailable',
    hint: 'Try again in a moment; the message says what was unavailable.',
    explanation:
      'The inferlet ended with the error `unavailable` of a call: workers were busy, a GPU host or another service of the platform was away, a file was locked, or a server that the function asks could not be reached.',
  },
  'device-lost': {
    status: 503,
    title: 'The device was lost',
    hint: 'Try again; the supervisor restarts the GPU host.',
    explanation:
      'The GPU host that held the KV pages of this invocation died, or its device failed. All that the invocation had computed is lost.',
  },
  'runtime-lost': {
    status: 503,
    title: 'The runtime was lost',
    hint: 'Try again; the supervisor restarts the runtime.',
    explanation:
      'The process that ran the invocation died, or could not be reached: the message says which one, and why. It is not run twice unless the function declares itself `restartable`. A function that ends its own sandbox again and again is quarantined.',
  },
  quarantined: {
    status: 409,
    title: 'The version is quarantined',
    hint: 'Deploy a new version, or lift the quarantine: `pie quarantine lift NAME` (`DELETE /v1/functions/{name}/quarantine`).',
    explanation:
      'Twice within ten minutes the sandbox of this version crashed or stopped answering while nothing but this version computed in it. It is not run again for this tenant until the quarantine is lifted; other versions still run.',
  },
  'artifact-unavailable': {
    status: 503,
    title: 'The function could not be loaded',
    hint: 'Try again. If the error persists, deploy the function again.',
    explanation: 'The runtime could not get or build the artifact of this version.',
  },
  internal: {
    status: 500,
    title: 'A fault of the platform',
    hint: 'Try again. If the error persists, report it with the request id.',
    explanation: "Something failed that should not. The details are in the platform's log under the request id.",
  },
} as const satisfies Record<string, CodeEntry>;
