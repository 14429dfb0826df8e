/** Interface of this folder to the rest of the runtime. */
export { openCodeCache, type ProgramCode } from './code-cache.ts';
export type { ConfinedProgram } from './command.ts';
export { type KernelShares, openKernelShares } from './kernel-limits.ts';
export { type Isolation, IsolationError, type Layers, layersFor, type Probe } from './layers.ts';
export { machineLayers, probeMachine } from './probe.ts';
export {
  type ConfinedLimits,
  crashReason,
  type Ended,
  type FileLimits,
  LimitPassed,
  residentBytes,
  runConfined,
  startConfinedThread,
  type Thread,
} from './run.ts';
