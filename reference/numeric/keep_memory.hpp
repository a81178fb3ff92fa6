// glibc returns every freed array beyond some MiB to the system, whose new pages then cost as much as filling them: a
// seventh of the bounds of long sequences. Called once, at the start of a program; elsewhere it does nothing.
#pragma once

namespace attest {

void keep_memory();

}  // namespace attest
