/** The program of an image worker: prepares images one at a time. */
import { err, handlerError, ok } from '#gpu-host/protocol/errors.ts';
import { serve } from '../workers/serve.ts';
import { decode } from './decode.ts';
import { ImageFault } from './header.ts';
import { prepare } from './prepare.ts';
import type { Request } from './service.ts';

serve<Request, Uint8Array>({
  run: ({ image, preparation }) => {
    try {
      return ok(prepare(decode(image), preparation));
    } catch (error) {
      if (!(error instanceof ImageFault)) throw error;
      return err(handlerError('invalid-argument', error.message));
    }
  },
  transfer: (pixels) => [pixels.buffer],
});
