"""What files beside the log say of the job."""
