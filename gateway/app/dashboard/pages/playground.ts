import { jsonValue } from '#scheduler/functions/schema/json-value.ts';
import type { FunctionVersion, HeldInvocation } from '../../control.ts';
import { GatewayError } from '../../errors/gateway-error.ts';
import { exactJson, roundsIntegers } from '../../http/json.ts';
import type { InputChecker } from '../../validation/input.ts';
import {
  exampleOf,
  type Filled,
  fieldsOf,
  filledOf,
  formFields,
  givenValue,
  type Refused,
  refused,
  textsOf,
} from '../forms/form.ts';
import {
  badge,
  code,
  duration,
  empty,
  type Html,
  html,
  jsonText,
  NONE,
  notice,
  number,
  tile,
  tiles,
  tokenField,
} from '../html/parts.ts';
import { demand, may, once, type Page, unknownInvocation, type Visit } from '../page.ts';
import { eventsCard, isOpen, outputCard, readPast, resultCard } from './invocation.ts';

const PATH = '/dashboard/playground';

/** Maximum bytes of the form. JSON escapes make the input at most six times as long (3 MiB), which is within the gateway's limit of 4 MiB. */
export const MAX_RUN_FORM_BYTES = 512 * 1024;

/** Maximum characters of an earlier input that fills the form member by member. A larger one is edited as the JSON text that it is. */
const MAX_READ_INPUT = 16 * 1024;

const STILL_OPEN =
  'The inferlet could not be told that no messages follow. If it waits for messages, it waits until its deadline: cancel it on its own page.';
/** The form of a version or alias in an address. */
const REFERENCE = /^[\w.-]{1,64}$/;

/** A form for the input of a function, and the run that the form began: its output as it arrives, its tokens and its device time. */
export async function playgroundPage(visit: Visit, refusedForm?: Filled): Promise<Page> {
  const { control, call, url } = visit;
  const name = url.searchParams.get('function') ?? '';
  const id = url.searchParams.get('invocation');
  const state = id === null ? null : await control.invocation(call, id);
  if (id !== null && state === null) throw unknownInvocation(id);
  const fn = name === '' ? null : await functionOf(visit, name);
  const loadPast = once(() => readPast(visit, state ?? throwNoRun()));
  const run = state === null ? [] : runFragments(state, loadPast);

  return {
    title: fn === null ? 'Playground' : `Playground: ${fn.name}`,
    place: 'playground',
    head: html`<div class="head"><div class="titles"><h1>Playground</h1><p>Choose a function, fill in its input, and watch it run.</p></div></div>${
      url.searchParams.get('messages') === 'open' && state !== null && isOpen(state) ? notice('bad', STILL_OPEN) : NONE
    }`,
    live: state !== null && isOpen(state),
    ...(state !== null && { stream: { id: state.id, after: state.lastEventId } }),
    fragments: [
      { id: 'choose', look: 'wide card', fixed: true, render: () => chooser(visit, name) },
      ...(fn === null
        ? []
        : [{ id: 'form', look: 'wide card', fixed: true as const, render: () => formCard(visit, fn, refusedForm) }]),
      ...run,
    ],
  };
}

/** Starts an invocation with the form of the playground. Returns the address to redirect to, or the form with its fault. */
export async function runPlayground(
  visit: Visit,
  form: URLSearchParams,
  inputs: InputChecker,
  report: (error: GatewayError) => void,
): Promise<string | Refused> {
  demand(visit, 'invoke');
  const name = visit.url.searchParams.get('function') ?? '';
  const fn = await functionOf(visit, name);
  const filled = filledOf(form);
  try {
    const { value, exact } = givenValue(fieldsOf(fn.manifest.input), filled);
    const invoked = await visit.control.invoke(visit.call, {
      function: { name: fn.name, version: fn.version },
      check: (version) => inputs.check(version, value),
      input: JSON.stringify(exact),
    });
    if (invoked === null) throw new GatewayError('unknown-function', `There is no function "${name}".`);
    const isClosed = await closeMessages(visit, invoked.id, report);
    return `${PATH}?${query(fn, visit, { invocation: invoked.id, ...(isClosed ? {} : { messages: 'open' }) })}#run`;
  } catch (error) {
    return refused(filled, error);
  }
}

/**
 * Tells the inferlet that no messages follow, since the form sends none: a function that waits for messages must not wait until its deadline.
 * Returns false when that failed; the invocation runs all the same.
 */
async function closeMessages(
  { control, call }: Visit,
  id: string,
  report: (error: GatewayError) => void,
): Promise<boolean> {
  try {
    await control.sendMessage(call, id, { close: true });
    return true;
  } catch (caught) {
    const error = GatewayError.from(caught);
    // The invocation has ended already: it waits for nothing.
    if (error.code === 'conflict') return true;
    report(error);
    return false;
  }
}

async function functionOf(visit: Visit, name: string): Promise<FunctionVersion> {
  const version = visit.url.searchParams.get('version') ?? undefined;
  if (version !== undefined && !REFERENCE.test(version))
    throw new GatewayError('invalid-input', 'The version in the address is not valid.', {
      hint: 'Choose a function from the list of the playground.',
    });
  const fn = await visit.control.function(visit.call, { name, version });
  if (fn !== null) return fn;
  throw new GatewayError(
    'unknown-function',
    version === undefined
      ? `There is no function "${name}".`
      : `There is no version "${version}" of a function "${name}".`,
    {
      hint: 'Choose a function from the list of the playground.',
    },
  );
}

async function chooser({ control, call }: Visit, chosenName: string): Promise<Html> {
  const functions = await control.functions(call);
  if (functions.length === 0)
    return html`<h2>Function</h2>${empty('There is no function.', html`Deploy one with <code>pie deploy</code>.`)}`;
  const options = functions.map(
    ({ name }) => html`<option value="${name}"${name === chosenName ? html` selected` : NONE}>${name}</option>`,
  );
  return html`<h2 class="unseen">Function</h2><form class="row" method="get" action="${PATH}">
<div><label for="function">Function</label><select id="function" name="function">${options}</select></div><button>Choose</button></form>`;
}

async function formCard(visit: Visit, fn: FunctionVersion, refusedForm: Filled | undefined): Promise<Html> {
  const fields = fieldsOf(fn.manifest.input);
  const filled = refusedForm ?? (await filledFor(visit, fn));
  const asJson = fields === null || filled.mode === 'json';
  let otherModeLink = NONE;
  if (!asJson) otherModeLink = html`<a href="${PATH}?${query(fn, visit, { as: 'json' })}">As JSON</a>`;
  else if (fields !== null) otherModeLink = html`<a href="${PATH}?${query(fn, visit)}">As a form</a>`;
  return html`<div class="card-head"><h2>Input of ${fn.name}</h2>${otherModeLink}</div>${fn.manifest.description === undefined ? NONE : html`<p class="muted">${fn.manifest.description}</p>`}
<form method="post" action="${PATH}?${query(fn, visit)}">${tokenField(visit.formToken)}${formFields(fields, filled, 'Input')}
<div class="actions">${may(visit, 'invoke') ? html`<button class="primary">Run</button>` : html`<p class="muted">Your key lacks the scope "invoke".</p>`}</div></form>`;
}

/** The form before its first submission: the input of the shown run, else of the invocation `from`, else the schema's example. */
async function filledFor(visit: Visit, { manifest }: FunctionVersion): Promise<Filled> {
  const earlierId = earlierOf(visit.url);
  const earlierInput = earlierId === null ? null : await inputOfEarlier(visit, earlierId);
  // Reading numbers exactly takes a microsecond for each value, so a large input is shown as it was sent.
  if (earlierInput !== null && earlierInput.length > MAX_READ_INPUT)
    return { mode: 'json', texts: { json: earlierInput } };
  const input = earlierInput === null ? exampleOf(manifest.input) : exactJson(earlierInput);
  const fields = visit.url.searchParams.get('as') === 'json' ? null : fieldsOf(manifest.input);
  if (input === undefined && fields !== null) return { mode: 'form', texts: {} };
  const plainInput = earlierInput === null ? input : jsonValue(earlierInput);
  // Form fields would round large integers, so an input with such integers is edited as JSON.
  const mustBeJson = fields === null || (earlierInput !== null && roundsIntegers(earlierInput));
  const texts = mustBeJson ? null : textsOf(fields, plainInput);
  return texts === null ? { mode: 'json', texts: { json: jsonText(input ?? {}) } } : { mode: 'form', texts };
}

/** The id of the invocation whose input fills the form. */
const earlierOf = ({ searchParams }: URL): string | null => searchParams.get('invocation') ?? searchParams.get('from');

/** The JSON text of an invocation's input; null when the store does not have it. */
async function inputOfEarlier({ control, call }: Visit, id: string): Promise<string | null> {
  try {
    return await control.input(call, id);
  } catch (error) {
    if (error instanceof GatewayError && error.code === 'unknown-input') return null;
    throw error;
  }
}

function runFragments(state: HeldInvocation, loadPast: () => ReturnType<typeof readPast>): Page['fragments'] {
  const { id, status, startedAt, endedAt, usage, error, question } = state;
  const address = `/dashboard/invocations/${encodeURIComponent(id)}`;
  const ranMs = startedAt === undefined || endedAt === undefined ? null : Date.parse(endedAt) - Date.parse(startedAt);
  return [
    {
      id: 'run',
      look: 'wide bare',
      render: () =>
        html`<div class="head"><div class="titles"><h2>Run <a class="mono" href="${address}">${id}</a></h2></div>${badge(status)}</div>${tiles(
          ...usageTiles(usage, ranMs).map(([label, value]) => tile(label, value)),
        )}${question === undefined ? NONE : notice('plain', html`The invocation asks a person. <a href="${address}#question">Answer it</a>`)}${error === undefined ? NONE : notice('bad', html`${code(error.code)} ${error.message}`)}`,
    },
    { id: 'written', look: 'wide card', fixed: true, render: async () => outputCard(state, await loadPast()) },
    { id: 'result', look: 'wide card', render: () => resultCard(state) },
    { id: 'happened', look: 'wide card', fixed: true, render: async () => eventsCard(await loadPast()) },
  ];
}

/**
 * The query of an address of this page. It keeps the invocation whose input fills the form. It also keeps the version: a replay runs the same version
 * as that invocation.
 */
function query({ name }: FunctionVersion, { url }: Visit, extraParams: Readonly<Record<string, string>> = {}): string {
  const version = url.searchParams.get('version');
  const from = earlierOf(url);
  const keptParams = { function: name, ...(version !== null && { version }), ...(from !== null && { from }) };
  return new URLSearchParams({ ...keptParams, ...extraParams }).toString();
}

/** Tokens, device time and duration of a run. */
function usageTiles(
  usage: Readonly<Record<string, unknown>> | undefined,
  ranMs: number | null,
): readonly (readonly [name: string, value: string])[] {
  const amount = (name: string) => (typeof usage?.[name] === 'number' ? Number(usage[name]) : 0);
  return [
    ['Input tokens', number(amount('inputTokens'))],
    ['Output tokens', number(amount('outputTokens'))],
    ['Device time', duration(amount('gpuMs'))],
    ['Duration', ranMs === null ? '–' : duration(ranMs)],
  ];
}

function throwNoRun(): never {
  throw new GatewayError('internal', 'The page has no run.');
}
