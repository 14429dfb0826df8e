import type { Message } from '#wit/generated/host.ts';
import type { Inferlet } from './inferlet.ts';

/** Implements `wit/session.wit`. */
export const session = {
  send: (inferlet: Inferlet, message: Message) => inferlet.session.send(message),
  flush: (inferlet: Inferlet) => inferlet.session.flush(),
  receive: (inferlet: Inferlet) => inferlet.received.next(),
};
