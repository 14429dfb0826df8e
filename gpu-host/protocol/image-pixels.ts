import { type HandlerError, handlerError, type Outcome } from './errors.ts';
import type { Issuer } from './issuer.ts';

/** Sends the pixels of the embed-image call with the id `call` when they resolve, or the error: the host waits for one of the two. */
export function sendPixels(issuer: Issuer, call: number, pixels: Promise<Outcome<Uint8Array>>): void {
  const send = (bytes: Uint8Array) => issuer.send(0, { op: 'image-pixels', pixels: bytes }, call);
  const fail = (why: HandlerError) => issuer.send(0, { op: 'image-failed', why }, call);
  const deliver = (outcome: Outcome<Uint8Array>): void => {
    const failure = outcome.tag === 'ok' ? send(outcome.val) : outcome.val;
    if (failure) fail(failure);
  };
  pixels.then(deliver, (error: unknown) => fail(handlerError('internal', `the image was lost: ${error}`)));
}
