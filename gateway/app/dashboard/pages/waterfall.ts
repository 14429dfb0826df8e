import type { MetricData, SpanReport, StartData } from '#scheduler/invocations/types.ts';
import type { HeldInvocation, InvocationEvent } from '../../control.ts';
import { duration, number } from '../html/format.ts';
import { type Html, html, NONE } from '../html/html.ts';

/** One step of an invocation: a bar on a time axis that begins with the submission. */
export interface Step {
  readonly name: string;
  /** Short text about the step; may be empty. */
  readonly note: string;
  /** Beginning, in milliseconds after the submission. */
  readonly fromMs: number;
  /** End, in milliseconds after the submission. */
  readonly toMs: number;
  /** Set for a part (span) that the program recorded. `not shown`: the last row, which has no bar and tells the number of dropped parts. */
  readonly part?: 'ended' | 'failed' | 'not shown';
  /** True when the step sums up separate times, such as all device calls. Its bar begins at `fromMs` and is as long as the sum. */
  readonly isSum?: true;
}

/** Minimum width of a bar in percent of the axis. It keeps a short step visible, also at the right end of the axis. */
const MIN_WIDTH = 0.4;
/** Minimum length of the axis: the positions of bars are divided by this length. */
const MIN_AXIS_MS = 0.001;

/**
 * The steps of an invocation that has ended: the wait in the queue, the making of the instance, the run of the program with the parts that it
 * recorded, and the preempted, device and CPU time. Empty for an invocation that still runs or never began.
 *
 * Only the last attempt is split into steps. Everything before it (earlier attempts and waits for a person) is the single step `Earlier attempts`.
 */
export function stepsOf(state: HeldInvocation, events: readonly InvocationEvent[]): readonly Step[] {
  const { createdAt, startedAt, endedAt } = state;
  const lastMetric = events.findLast(({ event }) => event === 'metric');
  if (lastMetric === undefined || startedAt === undefined || endedAt === undefined) return [];
  const metric = JSON.parse(lastMetric.data) as Partial<MetricData>;
  const lastStart = events.findLast(({ event }) => event === 'start');
  const start = lastStart === undefined ? {} : (JSON.parse(lastStart.data) as Partial<StartData>);
  const isColdStart = start.coldStart === true;
  const usage = (name: string) => (typeof state.usage?.[name] === 'number' ? Number(state.usage[name]) : 0);

  const endMs = Date.parse(endedAt) - Date.parse(createdAt);
  const begunMs = Math.min(endMs, Math.max(0, Date.parse(startedAt) - Date.parse(createdAt)));
  const { queuedMs = begunMs, buildMs = 0, compileMs = 0, instantiateMs = 0, firstCallMs, preemptedMs = 0 } = metric;
  const readyMs = Math.min(endMs, begunMs + buildMs + compileMs + instantiateMs);
  const instanceNotes = [
    isColdStart ? 'cold' : 'warm',
    ...(buildMs > 0 ? [`build ${duration(buildMs)}`] : []),
    ...(compileMs > 0 ? [`compile ${duration(compileMs)}`] : []),
    ...(instantiateMs > 0 ? [`instantiate ${duration(instantiateMs)}`] : []),
  ];
  const questions = events.filter(({ event }) => event === 'question').length;
  const hasEarlierAttempts = questions > 0 || state.attempts > 1;
  const queuedFromMs = hasEarlierAttempts ? Math.max(0, begunMs - queuedMs) : 0;
  const questionNote =
    questions === 0 ? '' : `with ${number(questions)} ${questions === 1 ? 'question' : 'questions'} to a person`;
  const firstCallNote =
    firstCallMs === undefined || usage('calls') === 0 ? '' : `, the first after ${duration(firstCallMs)}`;
  const sumStep = (name: string, ms: number, note: string, fromMs: number): Step[] =>
    ms > 0 ? [{ name, note, fromMs, toMs: Math.min(endMs, fromMs + ms), isSum: true }] : [];
  // The usage covers all attempts. If there were earlier ones, the bars of device and CPU time therefore begin at the submission.
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

/** The parts that the program recorded, at their times within the step `Program`. A last row tells how many further parts were dropped. */
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
  const axisMs = Math.max(...steps.map(({ toMs }) => toMs), MIN_AXIS_MS);
  const rows = steps.map(({ name, note, fromMs, toMs, part, isSum }) => {
    if (part === 'not shown') return html`<li class="part"><small>${name}</small></li>`;
    const left = Math.min((fromMs / axisMs) * 100, 100 - MIN_WIDTH);
    const width = Math.min(Math.max(MIN_WIDTH, ((toMs - fromMs) / axisMs) * 100), 100);
    const durationText = duration(toMs - fromMs);
    const outcomeClass = part === 'failed' ? 'bad' : 'busy';
    const barClass = isSum ? 'sum' : outcomeClass;
    const timeText = isSum ? `${durationText} in all` : `${durationText}, from ${duration(fromMs)} on`;
    const description = part === 'failed' ? `${timeText}, failed` : timeText;
    const noteHtml = note === '' ? NONE : html`<small>${note}</small>`;
    // A part has its note beside its name. A whole step has it below its bar.
    const [noteBeside, noteBelow] = part === undefined ? [NONE, noteHtml] : [noteHtml, NONE];
    return html`<li class="${part === undefined ? 'whole' : 'part'}"><span class="step"><span><strong>${name}</strong> ${noteBeside}</span> <span>${durationText}</span></span>
<svg class="bar ${barClass}" role="img" aria-label="${name}: ${description}" width="100%" height="8"><rect class="track" width="100%" height="8" rx="2"/><rect class="fill" x="${left.toFixed(2)}%" width="${width.toFixed(2)}%" height="8" rx="2"/></svg>${noteBelow}</li>`;
  });
  return html`<h2>Where the time went</h2><ol class="waterfall">${rows}</ol>`;
}
