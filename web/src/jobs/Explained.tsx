import type { Explanation } from "../api/types";
import { Link } from "../router";
import { pieces } from "./pieces";

/** The scheduler's explanation of the state; jobs named in it are links. */
export function Explained({ explanation, own }: { explanation: Explanation; own?: number }) {
  return (
    <p class="explained">
      {pieces(explanation.sentence).map((piece, place) =>
        piece.job !== null && piece.job !== own ? (
          <Link key={place} to={`/jobs/${piece.job}`}>
            {piece.text}
          </Link>
        ) : (
          piece.text
        ),
      )}
    </p>
  );
}
