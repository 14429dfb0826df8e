import type { HeldInvocation, InvocationEvent } from '../../control.ts';
import { duration, number } from '../html/format.ts';
import { type Html, html, NONE } from '../html/html.ts';

/** One step of an invocation: a bar on the time axis, from its submission on. */
export interface Step {
  readonly name: string;
  readonly note: string;
  /** Milliseconds after the submission. */
  readonly fromMs: number;
  readonly toMs: number;
  /** True for a sum of times, which is drawn from the beginning of its step although it happened in parts. */
  readonly isSum?: true;
}

/** Times of the metric event that an attempt ends with, ms. */
interface Metric {
  readonly queuedMs?: number;
  readonly preemptedMs?: number;
  readonly buildMs?: number;
  readonly compileMs?: number;
  readonly instantiateMs?: number;
  readonly firstCallMs?: number;
}

/**
 * The steps of an ended invocation: the wait in the queue, the instance, the program and what it used. Empty while it runs, and for one that
 * never began. The steps of an invocation with several attempts are those of the last, after the time of all earlier ones and of the waits for a person.
 */
export function stepsOf(state: HeldInvocation, events: readonly InvocationEvent[]): readonly Step[] {
  const { createdAt, startedAt, endedAt } = state;
  const last = events.findLast(({ event }) => event === 'metric');
  if (last === undefined || startedAt === undefined || endedAt === undefined) return [];
  const metric = JSON.parse(last.data) as Metric;
  const start = events.findLast(({ event }) => event === 'start');
  const coldStart = start !== undefined && (JSON.parse(start.data) as { coldStart?: boolean }).coldStart === true;
  const usage = (name: string) => (typeof state.usage?.[name] === 'number' ? Number(state.usage[name]) : 0);

  const endMs = Date.parse(endedAt) - Date.parse(createdAt);
  const begunMs = Math.min(endMs, Math.max(0, Date.parse(startedAt) - Date.parse(createdAt)));
  const { queuedMs = begunMs, buildMs = 0, compileMs = 0, instantiateMs = 0, firstCallMs, preemptedMs = 0 } = metric;
  const readyMs = Math.min(endMs, begunMs + buildMs + compileMs + instantiateMs);
  const parts = [
    ...(buildMs > 0 ? [`build ${duration(buildMs)}`] : []),
    ...(compileMs > 0 ? [`compile ${duration(compileMs)}`] : []),
    ...(instantiateMs > 0 ? [`instantiate ${duration(instantiateMs)}`] : []),
  ];
  const questions = events.filter(({ event }) => event === 'question').length;
  const queuedFromMs = questions > 0 || state.attempts > 1 ? Math.max(0, begunMs - queuedMs) : 0;
  const asked =
    questions === 0 ? '' : `with ${number(questions)} ${questions === 1 ? 'question' : 'questions'} to a person`;
  const sum = (name: string, ms: number, note: string, fromMs: number): Step[] =>
    ms > 0 ? [{ name, note, fromMs, toMs: Math.min(endMs, fromMs + ms), isSum: true }] : [];
  // The usage is that of all attempts.
  const usedFromMs = queuedFromMs > 0 ? 0 : readyMs;
  return [
    ...(queuedFromMs > 0 ? [{ name: 'Earlier attempts', note: asked, fromMs: 0, toMs: queuedFromMs }] : []),
    {
      ...{ name: 'Queue', note: state.attempts > 1 ? `attempt ${state.attempts}` : '' },
      ...{ fromMs: queuedFromMs, toMs: begunMs },
    },
    { name: 'Instance', note: [coldStart ? 'cold' : 'warm', ...parts].join(', '), fromMs: begunMs, toMs: readyMs },
    {
      name: 'Program',
      note: `${number(usage('calls'))} calls${firstCallMs === undefined ? '' : `, the first after ${duration(firstCallMs)}`}`,
      fromMs: readyMs,
      toMs: endMs,
    },
    ...sum('Preempted', preemptedMs, 'other invocations needed the memory', readyMs),
    ...sum('Device', usage('gpuMs'), 'its share of the batches, in all', usedFromMs),
    ...sum('CPU', usage('cpuMs'), 'its own code, in all', usedFromMs),
  ];
}

/** The steps as bars on one time axis. */
export function waterfall(steps: readonly Step[]): Html {
  if (steps.length === 0) return NONE;
  const wholeMs = Math.max(...steps.map(({ toMs }) => toMs), 0.001);
  const rows = steps.map(({ name, note, fromMs, toMs, isSum }) => {
    const left = (fromMs / wholeMs) * 100;
    const width = Math.max(0.4, ((toMs - fromMs) / wholeMs) * 100);
    const took = duration(toMs - fromMs);
    return html`<li><span class="step"><strong>${name}</strong> <span>${took}</span></span>
<svg class="bar ${isSum ? 'sum' : 'busy'}" role="img" aria-label="${name}: ${took}${isSum ? ' in all' : `, from ${duration(fromMs)} on`}" width="100%" height="8"><rect class="track" width="100%" height="8" rx="2"/><rect class="fill" x="${Math.min(left, 99.6).toFixed(2)}%" width="${Math.min(width, 100).toFixed(2)}%" height="8" rx="2"/></svg>${note === '' ? NONE : html`<small>${note}</small>`}</li>`;
  });
  return html`<h2>Where the time went</h2><ol class="waterfall">${rows}</ol>`;
}
