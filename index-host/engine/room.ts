/** The room of an index, or of all indexes of a tenant. */
export interface Room {
  readonly entries: number;
  readonly bytes: number;
}
