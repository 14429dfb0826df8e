import { raw } from 'hono/html';
import { Items } from '#scheduler/invocations/feed.ts';
import { hasEnded, type MetricData, type SpanReport, type StartData } from '#scheduler/invocations/types.ts';
import { LEVELS } from '../../bounds.ts';
import { type HeldInvocation, type InvocationEvent, MAX_ANSWER_BYTES } from '../../control.ts';
import { GatewayError } from '../../errors/gateway-error.ts';
import { JsonText, resultIn } from '../../http/json.ts';
import { BEGINNING, positionOf } from '../../invocations/event-id.ts';
import type { Question } from '../../schemas/invocations.ts';
import {
  type Field,
  FieldFault,
  type Filled,
  fieldsOf,
  filledOf,
  formFields,
  givenValue,
  type Refused,
  refused,
} from '../forms/form.ts';
import {
  textOf as asText,
  badge,
  bytes,
  code,
  duration,
  empty,
  facts,
  type Html,
  html,
  jsonText,
  measured,
  moment,
  NONE,
  notice,
  number,
  shortVersion,
  tokenField,
} from '../html/parts.ts';
import { demand, may, once, type Page, unknownInvocation, type Visit } from '../page.ts';
import { lasted } from './invocations.ts';

/** Maximum past events that the page begins with. `MAX_TEXT` bounds their characters, too, but never drops the last event. */
const PAST_EVENTS = 500;
/** Longest wait for the past events. */
const PAST_MS = 3000;
/** Maximum characters of the result that the page shows. */
const MAX_RESULT = 20_000;

/** One invocation: its state, its open question, its usage, and its output as it arrives. `refusedForm` is the form of a refused answer. */
export async function invocationPage(visit: Visit, id: string, refusedForm?: Refused): Promise<Page> {
  const { control, call, now } = visit;
  const state = await control.invocation(call, id);
  if (state === null) throw unknownInvocation(id);
  const isActive = isOpen(state);
  const loadPast = once(() => readPast(visit, state));
  const done = visit.url.searchParams.get('done');
  const isLate = refusedForm?.fault.code === 'not-waiting';

  return {
    title: `Invocation ${id}`,
    place: 'invocations',
    head: html`<p class="crumbs"><a href="/dashboard/invocations">Invocations</a></p>${
      done === 'cancelled' ? notice('good', isActive ? 'It was asked to stop.' : 'It has ended.') : NONE
    }${done === 'answered' && state.question === undefined ? notice('good', 'The answer was taken.') : NONE}${
      refusedForm !== undefined && isLate ? lateNotice(refusedForm) : NONE
    }`,
    live: isActive,
    stream: { id, after: state.lastEventId },
    fragments: [
      { id: 'state', look: 'wide bare', render: () => stateHead(visit, state, isActive) },
      { id: 'question', look: 'wide card', render: () => questionCard(visit, state, isLate ? undefined : refusedForm) },
      {
        id: 'facts',
        look: 'wide card',
        render: () =>
          html`<h2 class="unseen">State</h2>${facts([
            [
              'Function',
              html`<a href="/dashboard/functions/${encodeURIComponent(state.function)}">${state.function}</a>`,
            ],
            ['Version', html`<code title="${state.version}">${shortVersion(state.version)}</code>`],
            ['Created', moment(state.createdAt, now)],
            ['Started', state.startedAt === undefined ? '–' : moment(state.startedAt, now)],
            ['Ended', state.endedAt === undefined ? '–' : moment(state.endedAt, now)],
            [state.startedAt === undefined ? 'Waiting for' : 'Ran for', lasted(state, now)],
            ...(state.parent === undefined
              ? []
              : [
                  [
                    'Launched by',
                    html`<a class="mono" href="/dashboard/invocations/${encodeURIComponent(state.parent)}">${state.parent}</a>`,
                  ] as const,
                ]),
            ...(state.schedule === undefined ? [] : [['Schedule', state.schedule] as const]),
            ...(state.webhook === undefined ? [] : [['Webhook', state.webhook.status] as const]),
          ])}${
            state.error === undefined
              ? NONE
              : html`<div class="actions">${notice('bad', html`${code(state.error.code)} ${state.error.message}`)}</div>`
          }`,
      },
      { id: 'written', look: 'wide card', render: async () => outputCard(state, await loadPast()), fixed: true },
      { id: 'result', look: 'wide card', render: () => resultCard(state) },
      {
        id: 'steps',
        look: 'wide card',
        render: async () => (isActive ? NONE : waterfall(stepsOf(state, (await loadPast()).events))),
      },
      { id: 'usage', look: 'wide card', render: () => usageCard(state) },
      { id: 'happened', look: 'wide card', render: async () => eventsCard(await loadPast()), fixed: true },
    ],
  };
}

/** Asks for cancellation. Returns the address to redirect to. */
export async function cancelInvocation(visit: Visit, id: string): Promise<string> {
  demand(visit, 'invoke');
  const state = await visit.control.cancel(visit.call, id, 'Cancelled on the dashboard.');
  if (state === null) throw unknownInvocation(id);
  return `/dashboard/invocations/${encodeURIComponent(id)}?done=cancelled`;
}

export function isOpen({ status }: HeldInvocation): boolean {
  return !hasEnded(status);
}

function stateHead(visit: Visit, state: HeldInvocation, isActive: boolean): Html {
  const cancel =
    isActive && may(visit, 'invoke')
      ? html`<details class="confirm"><summary class="button danger">Cancel…</summary><div class="panel"><p>It stops soon. Its output so far is kept.</p>
<form method="post" action="/dashboard/invocations/${encodeURIComponent(state.id)}/cancel">${tokenField(visit.formToken)}<button class="danger">Cancel this invocation</button></form></div></details>`
      : NONE;
  const replayQuery = new URLSearchParams({
    function: state.function,
    version: state.version,
    from: state.id,
  }).toString();
  const replay = may(visit, 'invoke')
    ? html`<a class="button" href="/dashboard/playground?${replayQuery}">Run again…</a>`
    : NONE;
  return html`<div class="head"><div class="titles"><h1 class="mono">${state.id}</h1></div>${badge(state.status)}${cancel}${replay}</div>`;
}

function usageCard({ usage, status }: HeldInvocation): Html {
  const usageEntries = Object.entries(usage ?? {});
  if (usageEntries.length === 0)
    return html`<h2>Usage</h2>${empty(status === 'queued' ? 'It has not begun.' : 'Nothing was reported yet.')}`;
  return html`<h2>Usage</h2>${facts(
    usageEntries.map(([name, value]) => {
      const { label, text } = measured(name, value);
      return [label, text] as const;
    }),
  )}`;
}

export function resultCard({ output }: HeldInvocation): Html {
  if (output === undefined) return NONE;
  const text = textOf(output);
  const shownText = text.length > MAX_RESULT ? `${text.slice(0, MAX_RESULT)}\n…` : text;
  return html`<h2>Result</h2><pre class="console" tabindex="0" role="region" aria-label="Result">${shownText}</pre>`;
}

/** Shows a long output unformatted. */
function textOf(output: unknown): string {
  if (!(output instanceof JsonText)) return jsonText(output);
  return output.text.length > MAX_RESULT ? output.text : jsonText(output.value);
}

interface Past extends Transcript {
  /** Number of the first event that the page shows. */
  readonly first: number;
  readonly events: readonly InvocationEvent[];
}

export function outputCard(state: HeldInvocation, { text, first }: Past): Html {
  const omittedNote =
    first > 1
      ? html`<p class="muted">This begins with event ${first}: <code>pie attach ${state.id}</code> shows all.</p>`
      : NONE;
  const emptyNote =
    text === ''
      ? html`<p id="no-output" class="muted">${isOpen(state) ? 'Nothing was written yet.' : 'It wrote no text.'}</p>`
      : NONE;
  return html`<h2 id="h-output">Output</h2>${omittedNote}<pre id="output" class="console output" tabindex="0" role="log" aria-live="off" aria-labelledby="h-output">${text}</pre>${emptyNote}`;
}

export function eventsCard({ rows }: Past): Html {
  return html`<h2 id="h-events">Events</h2><ol id="events" class="console rows" tabindex="0" role="log" aria-live="off" aria-labelledby="h-events">${raw(rows)}</ol>`;
}

/** Reads the last events of an invocation, up to the last one that its state names. */
export async function readPast({ control, call }: Visit, { id, lastEventId }: HeldInvocation): Promise<Past> {
  const last = positionOf(lastEventId) ?? BEGINNING;
  const after = { epoch: null, seq: Math.max(0, last.seq - PAST_EVENTS) };
  const events: InvocationEvent[] = [];
  let heldCharacters = 0;
  const reading = new AbortController();
  const signal = AbortSignal.any([call.signal, reading.signal, AbortSignal.timeout(PAST_MS)]);
  try {
    if (last.seq > 0)
      for await (const event of new Items(control.events(call, id, after), signal)) {
        events.push(event);
        heldCharacters += event.data.length;
        while (heldCharacters > MAX_TEXT && events.length > 1) {
          const dropped = events.shift();
          heldCharacters -= dropped?.data.length ?? 0;
        }
        if (event.seq >= last.seq) break;
      }
  } catch (error) {
    // An old invocation may have a state but no events, since the store keeps events for a shorter time. When `PAST_MS` have passed, the page shows
    // the events that have come so far.
    const isGone = error instanceof GatewayError && error.code === 'unknown-invocation';
    if (!signal.aborted && !isGone) throw error;
  } finally {
    reading.abort();
  }
  return { ...(await transcript(events)), first: events[0]?.seq ?? 1, events };
}

/** Maximum bytes of the form. Its encoding takes at most three bytes for each byte of the answer; 16 KiB are for the token and the field names. */
export const MAX_ANSWER_FORM_BYTES = 3 * MAX_ANSWER_BYTES + 16 * 1024;

/** Name of the only form field for an answer whose schema is not an object. */
const WHOLE = 'answer';

/** The form fields of an answer. `fields` is null when its schema fits no form. `isWhole`: the answer is the value of the only field, `WHOLE`. */
function answerFields(schema: Question['schema']): {
  readonly fields: readonly Field[] | null;
  readonly isWhole: boolean;
} {
  const fields = fieldsOf(schema);
  if (fields !== null) return { fields, isWhole: false };
  const wholeFields = fieldsOf({ type: 'object', properties: { [WHOLE]: schema }, required: [WHOLE] });
  return wholeFields?.[0]?.kind === 'json' ? { fields: null, isWhole: false } : { fields: wholeFields, isWhole: true };
}

/** An open question with the form for its answer. The dashboard's script does not replace the form until the question is over. */
function questionCard(visit: Visit, { id, question }: HeldInvocation, refusedForm: Refused | undefined): Html {
  if (question === undefined) return NONE;
  const { number, text, schema, until } = question;
  const { fields } = answerFields(schema);
  const page = addressOf(id);
  const chosenMode = visit.url.searchParams.get('as') === 'json' ? 'json' : 'form';
  const filled: Filled = refusedForm ?? { mode: chosenMode, texts: {} };
  const asJson = fields === null || filled.mode === 'json';
  const otherModeLink = asJson
    ? html`<a href="${page}#question">As a form</a>`
    : html`<a href="${page}?as=json#question">As JSON</a>`;
  const form = html`<form method="post" action="${page}">${tokenField(visit.formToken)}<input type="hidden" name="question" value="${number}">
${formFields(fields, filled, 'Answer')}${asJson ? html`<details><summary>Schema of the answer</summary><pre class="console" tabindex="0" role="region" aria-label="Schema of the answer">${jsonText(schema)}</pre></details>` : NONE}
<div class="actions"><button class="primary">Answer</button>${fields === null ? NONE : otherModeLink}</div></form>`;
  return html`<div data-key="question-${number}"><div class="card-head"><h2>It asks a person</h2><span class="muted">It waits until ${moment(until, visit.now)}</span></div>
<p class="notice bad" role="alert" data-over hidden>This question is over: it was answered, or its time has passed. Copy what you typed, and load the page again.</p>
<pre class="console output fitted" tabindex="0" role="region" aria-label="Question">${text}</pre>
${may(visit, 'invoke') ? form : html`<p class="muted">Your key lacks the scope "invoke".</p>`}</div>`;
}

/** The notice that an answer came too late, with the texts that the reader had entered. */
function lateNotice({ texts, fault }: Refused): Html {
  const enteredTexts = Object.entries(texts).filter(([, text]) => text !== '');
  return html`${notice('bad', fault.message)}<div class="card section"><h2>You had entered</h2>${enteredTexts.map(
    ([name, text]) =>
      html`<h3>${name}</h3><pre class="console fitted" tabindex="0" role="region" aria-label="${name}">${text}</pre>`,
  )}</div>`;
}

/** Answers the question with the value in the form. Returns the address to redirect to, or the form with the reason of its refusal. */
export async function answerQuestion(visit: Visit, id: string, form: URLSearchParams): Promise<string | Refused> {
  demand(visit, 'invoke');
  const { control, call } = visit;
  const number = Number(form.get('question'));
  if (!Number.isSafeInteger(number) || number < 1)
    throw new GatewayError('invalid-input', 'The form does not name its question.', {
      hint: 'Go back, reload the page and try again.',
    });
  const filled = filledOf(form);
  const state = await control.invocation(call, id);
  if (state === null) throw unknownInvocation(id);
  // The invocation now asks another question, whose schema says nothing about this answer, or none.
  if (state.question?.number !== number) return refused(filled, questionOver(number));
  const { fields, isWhole } = answerFields(state.question.schema);
  try {
    const entered = givenValue(fields, filled);
    const isInWhole = isWhole && filled.mode === 'form';
    const value = isInWhole ? wholeOf(entered.value) : entered.value;
    const exact = isInWhole ? wholeOf(entered.exact) : entered.exact;
    const text = JSON.stringify(exact);
    if (new TextEncoder().encode(text).length > MAX_ANSWER_BYTES)
      throw new GatewayError('body-too-large', `The answer has more than ${bytes(MAX_ANSWER_BYTES)} of JSON.`);
    if ((await control.answer(call, id, { text, value, question: number })) === null) throw unknownInvocation(id);
    return `${addressOf(id)}?done=answered`;
  } catch (error) {
    if (error instanceof GatewayError && error.code === 'not-waiting') return refused(filled, questionOver(number));
    const refusedForm = refused(filled, error);
    return isWhole ? { ...refusedForm, fault: { ...refusedForm.fault, field: WHOLE } } : refusedForm;
  }
}

/** Takes the answer out of the form's only field `WHOLE`. */
function wholeOf(formValue: unknown): unknown {
  const value = (formValue as Readonly<Record<string, unknown>>)[WHOLE];
  if (value === undefined) throw new FieldFault(WHOLE, 'must not be empty');
  return value;
}

function questionOver(number: number): GatewayError {
  const why = 'it was answered already, or its time has passed';
  return new GatewayError('not-waiting', `Question ${number} is over: ${why}. Your answer was not stored.`, {
    hint: 'The page of the invocation shows its current question.',
  });
}

const addressOf = (id: string): string => `/dashboard/invocations/${encodeURIComponent(id)}`;

/** Maximum characters of one row; `pie attach` and the API show the rest. */
const MAX_ROW = 600;
/** Maximum characters of a result's row: the page shows the result elsewhere. */
const MAX_RESULT_ROW = 160;

/** Maximum characters of text that a page or a frame shows. A buffer of events reads no further event at this size. */
export const MAX_TEXT = 200_000;

/** Characters of `MAX_TEXT` that the note about omitted characters may take. */
const NOTE_LENGTH = 200;

/** A readable form of consecutive events of an invocation. */
interface Transcript {
  /** The inferlet's text messages, joined. */
  readonly text: string;
  /** The other events, one row of markup each. */
  readonly rows: string;
}

/** Separates the inferlet's text from all other events. */
export async function transcript(events: readonly InvocationEvent[]): Promise<Transcript> {
  let text = '';
  const rows: Html[] = [];
  for (const { seq, event, data } of events) {
    // A result may be long and nested to any depth, so it is not parsed.
    const parsed = event === 'result' ? {} : membersOf(data);
    if (event === 'message' && typeof parsed.text === 'string') text += parsed.text;
    else rows.push(row(seq, event, parsed, data));
    if (event === 'start' && Number(parsed.attempt) > 1) text += `\n\n— attempt ${Number(parsed.attempt)} —\n\n`;
  }
  return { text: endOf(text), rows: (await Promise.all(rows.map(asText))).join('') };
}

/** The text itself or, if it is too long, its end after a note about the omitted beginning. */
function endOf(text: string): string {
  if (text.length <= MAX_TEXT) return text;
  const omittedCharacters = text.length - MAX_TEXT + NOTE_LENGTH;
  return `\n… ${number(omittedCharacters)} characters are left out here, \`pie attach\` shows them …\n${text.slice(omittedCharacters).toWellFormed()}`;
}

function row(seq: number, event: InvocationEvent['event'], data: Members, raw: string): Html {
  const level = event === 'log' && LEVELS.some((each) => each === data.level) ? ` level-${data.level}` : '';
  const kind = event === 'log' ? String(data.level) : event;
  return html`<li class="${event}${level}"><span class="seq">${seq}</span><span class="kind">${truncate(kind, 12)}</span><span class="what">${truncate(rowText(event, data, raw), event === 'result' ? MAX_RESULT_ROW : MAX_ROW)}</span></li>`;
}

function rowText(event: InvocationEvent['event'], data: Members, raw: string): string {
  if (event === 'log') return String(data.message);
  if (event === 'gap')
    return `events after number ${data.after} may be missing: the runtime died before it stored them`;
  if (event === 'question') return `${data.text} (until ${data.until})`;
  if (event === 'error')
    return [
      `${data.code}: ${data.message}`,
      ...String(data.stack ?? '')
        .split('\n')
        .filter(Boolean),
    ].join('\n at ');
  if (event === 'message' && typeof data.base64 === 'string') return `${bytes((data.base64.length * 3) / 4)} of data`;
  if (event === 'message') {
    const { name, mediaType, bytes: size } = membersOf(JSON.stringify(data.file ?? {}));
    return `file ${name} (${mediaType}, ${bytes(Number(size))})`;
  }
  if (event === 'result') return outputText(raw);
  if (event === 'start' || event === 'metric')
    return Object.entries(data)
      .filter(([name]) => name !== 'invocation' && name !== 'function' && name !== 'version')
      .map(([name, value]) => `${name} ${memberText(value)}`)
      .join('  ');
  return raw;
}

/** A member of an event as text; a list as the number of its entries. */
function memberText(value: unknown): string {
  if (typeof value === 'string') return value;
  return JSON.stringify(Array.isArray(value) ? value.length : value);
}

function outputText(result: string): string {
  const { output } = resultIn(result);
  return output instanceof JsonText ? output.text : JSON.stringify(output);
}

type Members = Readonly<Record<string, unknown>>;

function membersOf(json: string): Members {
  const parsed: unknown = JSON.parse(json);
  return typeof parsed === 'object' && parsed !== null ? (parsed as Members) : {};
}

function truncate(text: string, length: number): string {
  return text.length > length ? `${text.slice(0, length)}…` : text;
}

/** One step of an invocation: a bar on a time axis that begins with the submission. */
interface Step {
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
