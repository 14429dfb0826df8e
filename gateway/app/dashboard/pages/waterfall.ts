import type { MetricData, SpanReport, StartData } from '#scheduler/invocations/event-data.ts';
import type { HeldInvocation, InvocationEvent } from '../../control.ts';
import { duration, number } from '../html/format.ts';
import { type Html, html, NONE } from '../html/html.ts';

/** One step of an invocation: a bar on a time axis that begins with the submission. */
export interface Step {
  readonly name: string;
  readonly note: string;
  /** Beginning, in milliseconds after the submission. */
  readonly fromMs: number;
  /** End, in milliseconds after the submission. */
  readonly toMs: number;
  /** Set for a part (span) that the program recorded. `not shown` marks the row that counts the parts without a bar. */
  readonly part?: 'ended' | 'failed' | 'not shown';
  /** True for a sum of separate times. One bar shows the sum, as if these times followed each other from `fromMs` on. */
  readonly isSum?: true;
}

/** Minimum width of a bar, in percent: a short step stays visible, also at the right end of the axis. */
const MIN_WIDTH = 0.4;

/**
 * The steps of an ended invocation: the wait in the queue, the instance, the program with the parts that it recorded, and its preempted,
 * device and CPU time. Empty while the invocation runs, and for one that never began. Only the last attempt is shown in steps. One step before it
 * stands for all earlier attempts and the waits for a person.
 */
export function stepsOf(state: HeldInvocation, events: readonly InvocationEvent[]): readonly Step[] {
  const { createdAt, startedAt, endedAt } = state;
  const lastMetric = events.findLast(({ event }) => event === 'metric');
  if (lastMetric === undefined || startedAt === undefined || endedAt === undefined) return [];
  const metric = JSON.parse(lastMetric.data) as Partial<MetricData>;
  const start = events.findLast(({ event }) => event === 'start');
  const coldStart = start !== undefined && (JSON.parse(start.data) as Partial<StartData>).coldStart === true;
  const usage = (name: string) => (typeof state.usage?.[name] === 'number' ? Number(state.usage[name]) : 0);

  const endMs = Date.parse(endedAt) - Date.parse(createdAt);
  const begunMs = Math.min(endMs, Math.max(0, Date.parse(startedAt) - Date.parse(createdAt)));
  const { queuedMs = begunMs, buildMs = 0, compileMs = 0, instantiateMs = 0, firstCallMs, preemptedMs = 0 } = metric;
  const readyMs = Math.min(endMs, begunMs + buildMs + compileMs + instantiateMs);
  const instanceNotes = [
    coldStart ? 'cold' : 'warm',
    ...(buildMs > 0 ? [`build ${duration(buildMs)}`] : []),
    ...(compileMs > 0 ? [`compile ${duration(compileMs)}`] : []),
    ...(instantiateMs > 0 ? [`instantiate ${duration(instantiateMs)}`] : []),
  ];
  const questions = events.filter(({ event }) => event === 'question').length;
  const queuedFromMs = questions > 0 || state.attempts > 1 ? Math.max(0, begunMs - queuedMs) : 0;
  const questionNote =
    questions === 0 ? '' : `with ${number(questions)} ${questions === 1 ? 'question' : 'questions'} to a person`;
  const firstCallNote =
    firstCallMs === undefined || usage('calls') === 0 ? '' : `, the first after ${duration(firstCallMs)}`;
  const sumStep = (name: string, ms: number, note: string, fromMs: number): Step[] =>
    ms > 0 ? [{ name, note, fromMs, toMs: Math.min(endMs, fromMs + ms), isSum: true }] : [];
  // Usage sums over all attempts, so after earlier attempts its bars begin at the submission.
  const usedFromMs = queuedFromMs > 0 ? 0 : readyMs;
  return [
    ...(queuedFromMs > 0 ? [{ name: 'Earlier attempts', note: questionNote, fromMs: 0, toMs: queuedFromMs }] : []),
    {
      name: 'Queue',
      note: state.attempts > 1 ? `attempt ${state.attempts}` : '',
      fromMs: queuedFromMs,
      toMs: begunMs,
    },
    { name: 'Instance', note: instanceNotes.join(', '), fromMs: begunMs, toMs: readyMs },
    {
      name: 'Program',
      note: `${number(usage('calls'))} calls${firstCallNote}`,
      fromMs: readyMs,
      toMs: endMs,
    },
    ...partsOf(metric, readyMs, endMs),
    ...sumStep('Preempted', preemptedMs, 'other invocations needed the memory', readyMs),
    ...sumStep('Device', usage('gpuMs'), 'its share of the batches, in all', usedFromMs),
    ...sumStep('CPU', usage('cpuMs'), 'its own code, in all', usedFromMs),
  ];
}

/** The parts that the program recorded, placed within its step, and a row with the number of parts that were not kept. */
function partsOf({ spans = [], moreSpans = 0 }: SpanReport, fromMs: number, endMs: number): readonly Step[] {
  const axisMs = (ms: number) => Math.min(endMs, fromMs + ms);
  const parts = spans.map(({ name, kind, failed, ...span }): Step => {
    const note = [...(kind === '' ? [] : [kind]), ...(failed ? ['failed'] : [])].join(', ');
    const part = failed ? 'failed' : 'ended';
    return { name: name.trim() || 'unnamed', note, fromMs: axisMs(span.fromMs), toMs: axisMs(span.toMs), part };
  });
  if (moreSpans === 0) return parts;
  return [...parts, { name: `and ${number(moreSpans)} more`, note: '', fromMs, toMs: endMs, part: 'not shown' }];
}

/** The steps as bars on one time axis. */
export function waterfall(steps: readonly Step[]): Html {
  if (steps.length === 0) return NONE;
  const totalMs = Math.max(...steps.map(({ toMs }) => toMs), 0.001);
  const rows = steps.map(({ name, note, fromMs, toMs, part, isSum }) => {
    if (part === 'not shown') return html`<li class="part"><small>${name}</small></li>`;
    const left = (fromMs / totalMs) * 100;
    const width = Math.max(MIN_WIDTH, ((toMs - fromMs) / totalMs) * 100);
    const durationText = duration(toMs - fromMs);
    const barLook = part === 'failed' ? 'bad' : 'busy';
    const look = isSum ? 'sum' : barLook;
    const timeText = isSum ? `${durationText} in all` : `${durationText}, from ${duration(fromMs)} on`;
    const description = part === 'failed' ? `${timeText}, failed` : timeText;
    const small = note === '' ? NONE : html`<small>${note}</small>`;
    const [beside, below] = part === undefined ? [NONE, small] : [small, NONE];
    return html`<li class="${part === undefined ? 'whole' : 'part'}"><span class="step"><span><strong>${name}</strong> ${beside}</span> <span>${durationText}</span></span>
<svg class="bar ${look}" role="img" aria-label="${name}: ${description}" width="100%" height="8"><rect class="track" width="100%" height="8" rx="2"/><rect class="fill" x="${Math.min(left, 100 - MIN_WIDTH).toFixed(2)}%" width="${Math.min(width, 100).toFixed(2)}%" height="8" rx="2"/></svg>${below}</li>`;
  });
  return html`<h2>Where the time went</h2><ol class="waterfall">${rows}</ol>`;
}
