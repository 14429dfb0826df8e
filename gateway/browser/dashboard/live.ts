/**
 * The dashboard's only script. It reads the event stream at the address in `data-live`: `fragment` replaces a changed
 * part, `events` adds to an invocation's output and list of events, `trouble` tells that the stream failed and that the
 * browser connects again, `end` ends the updates. The script closes the stream while the page is hidden.
 */
import type { LiveFrame } from '../../app/dashboard/live/frames.ts';

type Data<Event extends LiveFrame['event']> = Extract<LiveFrame, { readonly event: Event }>['data'];

const MAX_OUTPUT_CHARACTERS = 200_000;
const MAX_ROWS = 400;

const keyOf = (node: Node) => (node instanceof Element ? node.getAttribute('data-key') : null);

/** True for a part with a `data-key` that must stay in the page, since the user has typed into it. The part then says that it is over. */
function keepsTyped(node: Node): boolean {
  if (!(node instanceof Element) || keyOf(node) === null) return false;
  const fields = node.querySelectorAll<HTMLInputElement | HTMLTextAreaElement>('input:not([type=hidden]), textarea');
  const typed = [...fields].some(({ value }) => value !== '');
  if (typed) node.querySelector('[data-over]')?.removeAttribute('hidden');
  return typed;
}

/**
 * Changes `from` until it equals `to`. Leaves equal nodes alone, so that focus, selection and open details stay. Leaves each part with a `data-key`
 * alone as long as `to` has the same key in its place.
 */
function morph(from: Element, to: Element): void {
  for (const { name } of [...from.attributes]) {
    if (!to.hasAttribute(name) && !(from.localName === 'details' && name === 'open')) from.removeAttribute(name);
  }
  for (const { name, value } of to.attributes) if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  const old = [...from.childNodes];
  const wanted = [...to.childNodes];
  for (const [index, node] of wanted.entries()) {
    const present = old[index];
    if (present === undefined) from.append(node);
    else if (
      present.nodeType !== node.nodeType ||
      present.nodeName !== node.nodeName ||
      keyOf(present) !== keyOf(node)
    ) {
      if (!keepsTyped(present)) present.replaceWith(node);
    } else if (keyOf(node) !== null) continue;
    else if (present instanceof Element && node instanceof Element) morph(present, node);
    else if (present.nodeValue !== node.nodeValue) present.nodeValue = node.nodeValue;
  }
  for (const node of old.slice(wanted.length)) if (!keepsTyped(node)) node.remove();
}

function onFragment({ id, html }: Data<'fragment'>): void {
  const element = document.getElementById(id);
  if (element === null) return;
  const wanted = document.createElement('template');
  wanted.innerHTML = html;
  const copy = element.cloneNode(false) as Element;
  copy.append(wanted.content);
  morph(element, copy);
}

const isAtEnd = (element: Element) => element.scrollHeight - element.scrollTop - element.clientHeight < 40;

function scrollToEnd(element: Element): void {
  element.scrollTop = element.scrollHeight;
}

function onEvents({ text, rows }: Data<'events'>): void {
  const output = document.getElementById('output');
  const list = document.getElementById('events');
  if (output !== null && text !== '') {
    const follow = isAtEnd(output);
    output.append(text);
    output.normalize();
    const shown = output.firstChild;
    if (shown instanceof Text && shown.length > MAX_OUTPUT_CHARACTERS)
      shown.deleteData(0, shown.length - MAX_OUTPUT_CHARACTERS);
    document.getElementById('no-output')?.remove();
    if (follow) scrollToEnd(output);
  }
  if (list !== null && rows !== '') {
    const follow = isAtEnd(list);
    list.insertAdjacentHTML('beforeend', rows);
    while (list.children.length > MAX_ROWS) list.firstElementChild?.remove();
    if (follow) scrollToEnd(list);
  }
}

/** Follows the stream at `address` while the page is visible, and shows in `state` how that goes. */
function follow(address: string, state: HTMLElement): void {
  let source: EventSource | null = null;
  let over = false;
  let lastEventId: string | null = null;

  const say = (kind: 'on' | 'off' | 'trouble', text: string) => {
    if (state.textContent === text) return;
    state.dataset.kind = kind;
    state.textContent = text;
  };

  const stop = () => {
    source?.close();
    source = null;
  };

  const start = () => {
    if (over || source !== null || document.hidden) return;
    const url = new URL(address, location.href);
    if (lastEventId !== null) url.searchParams.set('after', lastEventId);
    source = new EventSource(url);
    source.addEventListener('open', () => say('on', 'Live'));
    source.addEventListener('fragment', (event) => onFragment(JSON.parse(event.data)));
    source.addEventListener('events', (event) => {
      lastEventId = event.lastEventId;
      onEvents(JSON.parse(event.data));
    });
    source.addEventListener('trouble', () => say('trouble', 'Interrupted, trying again'));
    source.addEventListener('end', (event) => {
      const { why }: Data<'end'> = JSON.parse(event.data);
      over = true;
      stop();
      if (why === 'signed-out') location.reload();
      else say('off', 'Complete');
    });
    source.addEventListener('error', () => {
      if (source === null) return;
      if (source.readyState === EventSource.CLOSED) say('off', 'Not live: reload to try again');
      else say('trouble', 'Connecting again');
    });
  };

  document.addEventListener('visibilitychange', () => {
    if (!document.hidden) start();
    else if (source !== null) {
      stop();
      say('off', 'Paused');
    }
  });
  // A page that the browser keeps for its "back" button holds no connection.
  addEventListener('pagehide', stop);
  addEventListener('pageshow', start);
  start();
}

const address = document.body.dataset.live;
const state = document.getElementById('live-state');
if (address !== undefined && state !== null) {
  const output = document.getElementById('output');
  if (output !== null) scrollToEnd(output);
  follow(address, state);
}
