
#define HEADER "Profiler-" << index_ << ": "
// LOG(INFO) << "in a comment";
absl::Status one() {
  LOG(INFO) << "RxDM " << (found ? "is" : "is not") << " here";
  LOG_IF(WARNING, x > 1) << absl::StrFormat("%d of %s\n%s", n, name(1), Rest());
  PLOG(ERROR) << HEADER << "close failed";
  LOG(LEVEL(level())) << absl::StrCat("Found ", count, " NICs");
  LOG(ERROR) << status;
  VLOG(1) << "never asked for";
  RETURN_IF_ERROR(Check(a, "b")).LogWarning() << "while listening on " << port;
  ASSIGN_OR_RETURN(auto x, Two(), _ << "\nGave up");
  if (bad) return absl::FailedPreconditionError(absl::StrFormat("No NIC %d", 1));
  return absl::ErrnoToStatus(errno, absl::StrCat("Cannot open ", path));
}
