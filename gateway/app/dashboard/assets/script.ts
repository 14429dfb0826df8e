/**
 * The dashboard's only script. It reads the event stream at the address in `data-live`: `fragment` replaces a changed
 * part, `events` adds to an invocation's output and list of events, `trouble` tells that the stream failed and that the
 * browser connects again, `end` ends the updates. The script closes the stream while the page is hidden.
 */
export const SCRIPT = `'use strict';
(() => {
  const address = document.body.dataset.live;
  if (address === undefined) return;
  const MAX_OUTPUT = 200000;
  const MAX_ROWS = 400;
  const state = document.getElementById('live-state');
  let source = null;
  let over = false;
  let last = null;

  const say = (kind, text) => {
    if (state.textContent === text) return;
    state.dataset.kind = kind;
    state.textContent = text;
  };

  const keyOf = (node) => node.dataset?.key;
  /* A part with a key keeps the user's text although the part should go. The part then says that it is over. */
  const keepsTyped = (node) => {
    if (keyOf(node) === undefined) return false;
    const typed = [...node.querySelectorAll('input:not([type=hidden]), textarea')].some(({ value }) => value !== '');
    if (typed) node.querySelector('[data-over]').hidden = false;
    return typed;
  };

  /* Changes what differs and leaves the rest alone, so that focus, selection and what was opened stay. Leaves all of a part alone while its key stays. */
  const morph = (from, to) => {
    for (const { name } of [...from.attributes]) {
      if (!to.hasAttribute(name) && !(from.localName === 'details' && name === 'open')) from.removeAttribute(name);
    }
    for (const { name, value } of to.attributes) if (from.getAttribute(name) !== value) from.setAttribute(name, value);
    const old = [...from.childNodes];
    const wanted = [...to.childNodes];
    wanted.forEach((node, index) => {
      const present = old[index];
      if (present === undefined) from.append(node);
      else if (present.nodeType !== node.nodeType || present.nodeName !== node.nodeName || keyOf(present) !== keyOf(node)) {
        if (!keepsTyped(present)) present.replaceWith(node);
      } else if (keyOf(node) !== undefined) return;
      else if (node.nodeType === Node.ELEMENT_NODE) morph(present, node);
      else if (present.nodeValue !== node.nodeValue) present.nodeValue = node.nodeValue;
    });
    for (const node of old.slice(wanted.length)) if (!keepsTyped(node)) node.remove();
  };

  const onFragment = ({ id, html }) => {
    const element = document.getElementById(id);
    if (element === null) return;
    const template = document.createElement('template');
    template.innerHTML = html;
    const wanted = element.cloneNode(false);
    wanted.append(template.content);
    morph(element, wanted);
  };

  const atEnd = (element) => element.scrollHeight - element.scrollTop - element.clientHeight < 40;

  const onEvents = ({ text, rows }) => {
    const output = document.getElementById('output');
    const list = document.getElementById('events');
    if (text !== '') {
      const follow = atEnd(output);
      output.append(text);
      output.normalize();
      const node = output.firstChild;
      if (node.length > MAX_OUTPUT) node.deleteData(0, node.length - MAX_OUTPUT);
      document.getElementById('no-output')?.remove();
      if (follow) output.scrollTop = output.scrollHeight;
    }
    if (rows !== '') {
      const follow = atEnd(list);
      list.insertAdjacentHTML('beforeend', rows);
      while (list.children.length > MAX_ROWS) list.firstElementChild.remove();
      if (follow) list.scrollTop = list.scrollHeight;
    }
  };

  const stop = () => {
    source?.close();
    source = null;
  };

  const start = () => {
    if (over || source !== null || document.hidden) return;
    const url = new URL(address, location.href);
    if (last !== null) url.searchParams.set('after', last);
    source = new EventSource(url);
    source.addEventListener('open', () => say('on', 'Live'));
    source.addEventListener('fragment', (event) => onFragment(JSON.parse(event.data)));
    source.addEventListener('events', (event) => {
      last = event.lastEventId;
      onEvents(JSON.parse(event.data));
    });
    source.addEventListener('trouble', () => say('trouble', 'Interrupted, trying again'));
    source.addEventListener('end', (event) => {
      const { why } = JSON.parse(event.data);
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
  /* A page that waits for "back" holds no connection. */
  addEventListener('pagehide', stop);
  addEventListener('pageshow', start);
  const output = document.getElementById('output');
  if (output !== null) output.scrollTop = output.scrollHeight;
  start();
})();
`;
