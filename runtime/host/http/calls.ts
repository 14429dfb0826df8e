import type { Outcome } from '#gpu-host/protocol/errors.ts';
import type { Request, ResponseHead } from '#wit/generated/host.ts';
import type { Inferlet } from '../inferlet.ts';
import { Exchange } from './exchange.ts';

/** Implements `wit/http.wit`. */
export const http = {
  '[constructor]exchange': (inferlet: Inferlet, request: Request): Exchange => new Exchange(inferlet, request),
  '[method]exchange.head': (inferlet: Inferlet, self: Exchange): Promise<Outcome<ResponseHead>> =>
    inferlet.hooks.waits.during(self.head()),
  '[method]exchange.read': (_inferlet: Inferlet, self: Exchange): Promise<Outcome<Uint8Array | undefined>> =>
    self.read(),
  '[resource-drop]exchange': (_inferlet: Inferlet, self: Exchange): void => self.drop(),
};
