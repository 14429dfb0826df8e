/** What the rest of the runtime uses of this folder. */
export type { ConfinedProgram } from './command.ts';
export { type KernelShares, openKernelShares } from './kernel-limits.ts';
export { type Isolation, IsolationError, type Layers, layersFor } from './layers.ts';
export { machineLayers } from './machine.ts';
export { probeMachine } from './probe.ts';
export { type ConfinedLimits, type Ended, LimitPassed, runConfined } from './run.ts';
