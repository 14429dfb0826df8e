import { encodeImageFailed, encodeImagePixels } from './encode-calls.ts';
import { type HandlerError, handlerError, type Outcome } from './errors.ts';
import type { Issuer } from './issuer.ts';

/** Sends the pixels of the embed-image `call` when they are there, or the error: the host waits for one or the other. */
export function sendPixels(issuer: Issuer, call: number, pixels: Promise<Outcome<Uint8Array>>): void {
  const send = (bytes: Uint8Array) => issuer.send((link) => encodeImagePixels(link.writer, issuer.handle, call, bytes));
  const fail = (why: HandlerError) => issuer.send((link) => encodeImageFailed(link.writer, issuer.handle, call, why));
  const deliver = (made: Outcome<Uint8Array>): void => {
    const sent = made.tag === 'ok' ? send(made.val) : made.val;
    if (sent) fail(sent);
  };
  pixels.then(deliver, (error: unknown) => fail(handlerError('internal', `the image was lost: ${error}`)));
}
