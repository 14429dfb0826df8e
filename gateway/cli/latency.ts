import type { Tenant } from '../app/resources/tenants.ts';
import { Failure } from './failure.ts';
import { duration } from './format.ts';

/** Latency targets. `false` stands for none: commander would replace a null from the parser of an option by an empty text. */
export type Targets = NonNullable<Tenant['latency']> | false;

export const latency = (help: string) =>
  ({
    flags: '--latency <targets>',
    help: `${help}: milliseconds to the first token and for each later one (such as 300,40), or none`,
    parse: parseTargets,
  }) as const;

/** Latency targets in words, such as `300 ms, then 40 ms a token`. */
export function targetsText(targets: Tenant['latency']): string {
  if (targets === null) return 'none';
  return `${duration(targets.firstTokenMs)}, then ${duration(targets.perTokenMs)} a token`;
}

/** Checks only the form. `pie deploy` checks the bounds of a function's targets with its manifest; the gateway checks those of a tenant. */
function parseTargets(text: string): Targets {
  if (text === 'none') return false;
  const [, first, each] = /^(\d{1,6}),(\d{1,6})$/.exec(text) ?? [];
  if (first === undefined || each === undefined)
    throw new Failure(`"${text}" is neither two numbers of milliseconds, such as 300,40, nor "none".`);
  return { firstTokenMs: Number(first), perTokenMs: Number(each) };
}
